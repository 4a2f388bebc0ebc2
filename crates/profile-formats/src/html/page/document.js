// Decodes the profile: deflated JSON becomes typed arrays of functions, call tree and timeline.

import { readColumn, readSignedColumn } from "./columns.js";
import { readLanes } from "./lanes.js";
import { readRuntimeEvents } from "./runtime_events.js";

/** @import { Lanes } from "./lanes.js" */
/** @import { RuntimeEvents } from "./runtime_events.js" */
/** @import { Threads } from "./stack_list.js" */

/**
 * Columns of functions by index. The functions of the profile come first, then the roots, which are not code.
 * @typedef {object} Functions
 * @property {number} count the number of functions of the profile; higher indices are roots
 * @property {number} root the index of the root `all`
 * @property {string[]} name with file name and line if these are known
 * @property {string[]} kind a key of `KINDS`, or `root`
 * @property {string[]} module path of the module, or ""
 * @property {string[]} place source file and line as file:line, or ""
 * @property {string[]} symbolization the source of the symbol, or the reason why it is missing
 * @property {Record<number, string>} waitGroup the group of each cause of waits, by its index
 * @property {Uint8Array} isLabel 1 for texts that are no code: the separator before a waker's stack, and the waker's name
 */

/**
 * Stacks, root first; a parent precedes its children.
 * @typedef {object} StackTree
 * @property {Int32Array} parent
 * @property {Int32Array} function
 * @property {Int32Array} [placeOf] in a folded tree, the place of each node of the whole tree
 */

/**
 * Samples over time: each span has an entry for each thread and call tree node that was sampled in it.
 * @typedef {object} Timeline
 * @property {number} spanSeconds
 * @property {number} spans the number of spans
 * @property {Uint32Array} start the first entry of each span, then the end of the last span
 * @property {Uint32Array} thread
 * @property {Uint8Array} state an index of `states` of the profile
 * @property {Int32Array} node
 * @property {Float64Array} count
 */

/**
 * Header of a profile and ledger of an event: `target`, `event`, `event_text`, `shown`, `unit_ns`, `cpus`,
 * `duration_ns`, `started_unix_ms`, `incident_ns`, `incident_since_ns`, `reported`, `lost`, `edits`, `why_empty`, `findings`,
 * `ledger`.
 * @typedef {Record<string, any>} Measurement
 */

/**
 * The samples of an event.
 * @typedef {object} EventSamples
 * @property {Measurement[]} measurements of each profile
 * @property {Timeline[]} timelines of each profile
 */

/**
 * The content of the page: one profile, or the two profiles of a difference, before and after.
 * @typedef {object} Profile
 * @property {EventSamples[]} events
 * @property {number} initialEvent the index of the event that is shown first
 * @property {Measurement[]} measurements of each profile, for the selected event
 * @property {Timeline[]} timelines of each profile, for the selected event
 * @property {Functions} functions
 * @property {StackTree} tree all stacks
 * @property {boolean} showsWaitFrames whether the page begins with the frames in which threads wait
 * @property {Record<string, Int32Array>} rootsByGrouping for each grouping, the root function of each thread, or -1
 * @property {string} initialGrouping a key of `rootsByGrouping`
 * @property {string[]} states the names of the states of a thread: keys of `STATES`
 * @property {Threads} threads
 * @property {Lanes | null} lanes what each thread did over time, if the samples have states
 * @property {RuntimeEvents | null} runtimeEvents what the runtimes reported, if they did
 */

/** @returns {Promise<Profile>} */
export async function readProfile(/** @type {string} */ base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const json = await new Response(stream).json();
  const functions = readFunctions(json);
  const events = json.events.map((profiles) => ({
    measurements: profiles.map((profile) => readMeasurement(profile, json.strings)),
    timelines: profiles.map(({ timeline }) => readTimeline(timeline)),
  }));
  return {
    events,
    ...events[json.initial_event],
    initialEvent: json.initial_event,
    functions,
    tree: readTree(json.tree),
    showsWaitFrames: json.wait_frames === true,
    rootsByGrouping: addRoots(functions, json),
    initialGrouping: json.roots,
    states: json.states,
    threads: json.threads,
    lanes: json.lanes ? readLanes(json.lanes, json) : null,
    runtimeEvents: json.runtime_events ? readRuntimeEvents(json.runtime_events, json) : null,
  };
}

/** @returns {Measurement} */
function readMeasurement({ timeline, ...measurement }, /** @type {string[]} */ strings) {
  for (const key of ["target", "event", "event_text", "edits", "why_empty"]) measurement[key] = strings[measurement[key]];
  return measurement;
}

/** @returns {Functions} */
function readFunctions({ functions, kinds, strings }) {
  const text = (index) => strings[index];
  const place = (file, index) => {
    const line = functions.line[index];
    return line ? `${text(file)}:${line}` : text(file);
  };
  const name = (textIndex, index) => {
    const file = functions.file[index];
    const shownName = text(textIndex).trim() === "" ? "(empty name)" : text(textIndex);
    return file ? `${shownName} (${place(file, index).split("/").pop()})` : shownName;
  };
  return {
    count: functions.name.length,
    root: -1,
    name: functions.name.map(name),
    kind: functions.kind.map((kind) => kinds[kind]),
    module: functions.module.map(text),
    place: functions.file.map(place),
    symbolization: functions.symbolization.map(text),
    waitGroup: Object.fromEntries(functions.waits ?? []),
    isLabel: markLabels(functions),
  };
}

function markLabels({ name, labels = [] }) {
  const isLabel = new Uint8Array(name.length);
  for (const label of labels) isLabel[label] = 1;
  return isLabel;
}

function readTree(json) {
  const up = readColumn(json.up, Int32Array);
  const parent = new Int32Array(up.length + 1).fill(-1);
  const path = [0];
  let depth = 0;
  for (let index = 0; index < up.length; index += 1) {
    depth -= up[index];
    parent[index + 1] = path[depth];
    depth += 1;
    path[depth] = index + 1;
  }
  const functionOf = new Int32Array(parent.length).fill(-1);
  functionOf.set(readColumn(json.function, Int32Array), 1);
  return { parent, function: functionOf };
}

/** Adds the functions that are not code: the root `all`, and one for each group of threads. */
function addRoots(/** @type {Functions} */ functions, { threads, processes, strings }) {
  const indices = new Map();
  const addRoot = (name) => {
    if (!indices.has(name)) {
      indices.set(name, functions.name.push(name) - 1);
      functions.kind.push("root");
      functions.module.push("");
      functions.place.push("");
      functions.symbolization.push("");
    }
    return indices.get(name);
  };
  functions.root = addRoot("all");
  const comm = (process) => strings[processes.comm[process]];
  const addRootsBy = (name) => Int32Array.from(threads.process, (process, thread) => addRoot(name(process, thread)));
  return {
    none: Int32Array.from(threads.process, () => -1),
    comm: addRootsBy((process) => comm(process)),
    // Container runtimes show 12 characters of an id.
    container: addRootsBy((process) => {
      const id = strings[processes.container[process]];
      const pod = strings[processes.pod[process]];
      return id ? `container ${id.slice(0, 12)}${pod && ` (${pod})`}` : "no container";
    }),
    process: addRootsBy((process) => `process ${processes.pid[process]} (${comm(process)})`),
    thread: addRootsBy((_, thread) => `thread ${threads.tid[thread]} (${strings[threads.comm[thread]]})`),
    name: addRootsBy((_, thread) => `threads named ${strings[threads.comm[thread]]}`),
  };
}

/** @returns {Timeline} */
function readTimeline(json) {
  const spans = readColumn(json.spans, Uint32Array);
  const start = new Uint32Array(spans.length + 1);
  spans.forEach((entries, span) => {
    start[span + 1] = start[span] + entries;
  });
  // Each number is the difference to the previous node.
  const nodes = readSignedColumn(json.node);
  for (let entry = 1; entry < nodes.length; entry += 1) nodes[entry] += nodes[entry - 1];
  const count = readColumn(json.count, Float64Array);
  return {
    spanSeconds: json.span_ns / 1e9,
    spans: spans.length,
    start,
    thread: readColumn(json.thread, Uint32Array),
    state: json.state ? readColumn(json.state, Uint8Array) : new Uint8Array(count.length),
    node: nodes,
    count,
  };
}
