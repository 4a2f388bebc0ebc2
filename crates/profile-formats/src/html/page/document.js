// The profile as the page was given it: deflated JSON, made into columns that are quick to walk.

/**
 * Functions by number. Above those of the profile stand the roots, which are no code: see `addRoots`.
 * @typedef {object} Functions
 * @property {number} count how many of them are code
 * @property {number} root the one that stands above everything
 * @property {string[]} name with the place in the source, where that is known
 * @property {string[]} kind what each is coloured by
 * @property {string[]} module path of its file, or ""
 * @property {string[]} place file:line, or ""
 * @property {string[]} symbolization the source of its name, or why it has none
 */

/**
 * What ran when: an entry for each thread and node of a short span of time.
 * @typedef {object} Timeline
 * @property {number} spanSeconds
 * @property {number} spans how many there are
 * @property {Uint32Array} start the first entry of each span, and the end of the last
 * @property {Uint32Array} thread
 * @property {Int32Array} node
 * @property {Float64Array} count
 */

/**
 * What was measured, and what became of it: `target`, `event`, `frequency_hz`, `cpus`, `duration_ns`,
 * `started_unix_ms`, `reported`, `lost`, `edits`, `why_empty`, `ledger`.
 * @typedef {Record<string, any>} Measured
 */

/**
 * What the page shows: one profile, or one from before and one from after.
 * @typedef {object} Profile
 * @property {Measured[]} measured of each profile
 * @property {Timeline[]} timelines of each profile
 * @property {Functions} functions
 * @property {{parent: Int32Array, function: Int32Array}} tree all stacks, root first; a parent before its children
 * @property {Record<string, Int32Array>} roots for each way of telling threads apart, each thread's root or -1
 * @property {string} firstRoots the way to begin with
 */

/** @returns {Promise<Profile>} */
async function readProfile(/** @type {string} */ base64) {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = binary.charCodeAt(at);
  const json = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const written = await new Response(json).json();
  const functions = readFunctions(written);
  return {
    measured: written.profiles.map((profile) => readMeasured(profile, written.strings)),
    timelines: written.profiles.map(({ timeline }) => readTimeline(timeline)),
    functions,
    tree: readTree(written.tree),
    roots: addRoots(functions, written),
    firstRoots: written.roots,
  };
}

/** @returns {Measured} */
function readMeasured({ timeline, ...measured }, /** @type {string[]} */ strings) {
  for (const text of ["target", "event", "edits", "why_empty"]) measured[text] = strings[measured[text]];
  return measured;
}

/** @returns {Functions} */
function readFunctions({ functions, kinds, strings }) {
  const text = (number) => strings[number];
  const place = (file, index) => {
    const line = functions.line[index];
    return line ? `${text(file)}:${line}` : text(file);
  };
  const name = (number, index) => {
    const file = functions.file[index];
    const called = text(number).trim() === "" ? "(empty name)" : text(number);
    return file ? `${called} (${place(file, index).split("/").pop()})` : called;
  };
  return {
    count: functions.name.length,
    root: -1,
    name: functions.name.map(name),
    kind: functions.kind.map((kind) => kinds[kind]),
    module: functions.module.map(text),
    place: functions.file.map(place),
    symbolization: functions.symbolization.map(text),
  };
}

function readTree(written) {
  const up = readColumn(written.up, Int32Array);
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
  functionOf.set(readColumn(written.function, Int32Array), 1);
  return { parent, function: functionOf };
}

/** Adds what stands above code: the root of all, and the names, processes and threads below it. */
function addRoots(/** @type {Functions} */ functions, { threads, processes, strings }) {
  const numbers = new Map();
  const add = (name) => {
    if (!numbers.has(name)) {
      numbers.set(name, functions.name.push(name) - 1);
      functions.kind.push("root");
      functions.module.push("");
      functions.place.push("");
      functions.symbolization.push("");
    }
    return numbers.get(name);
  };
  functions.root = add("all");
  const comm = (process) => strings[processes.comm[process]];
  const ofThread = (name) => Int32Array.from(threads.process, (process, thread) => add(name(process, thread)));
  return {
    none: Int32Array.from(threads.process, () => -1),
    comm: ofThread((process) => comm(process)),
    // As much of an id as container runtimes show.
    container: ofThread((process) => {
      const id = strings[processes.container[process]];
      return id ? `container ${id.slice(0, 12)}` : "no container";
    }),
    process: ofThread((process) => `process ${processes.pid[process]} (${comm(process)})`),
    thread: ofThread((_, thread) => `thread ${threads.tid[thread]} (${strings[threads.comm[thread]]})`),
    name: ofThread((_, thread) => `threads named ${strings[threads.comm[thread]]}`),
  };
}

/** @returns {Timeline} */
function readTimeline(written) {
  const spans = readColumn(written.spans, Uint32Array);
  const start = new Uint32Array(spans.length + 1);
  spans.forEach((entries, span) => {
    start[span + 1] = start[span] + entries;
  });
  // Each is the difference to the one before.
  const nodes = readSignedColumn(written.node);
  for (let entry = 1; entry < nodes.length; entry += 1) nodes[entry] += nodes[entry - 1];
  return {
    spanSeconds: written.span_ns / 1e9,
    spans: spans.length,
    start,
    thread: readColumn(written.thread, Uint32Array),
    node: nodes,
    count: readColumn(written.count, Float64Array),
  };
}
