// Decodes runtime events: what the runtimes of the processes reported beside the samples.

import { readColumn } from "./columns.js";
import { createElement } from "./elements.js";

/** The colours in the style sheet of the kinds that are bands through all lanes. */
export const BANDS = { "garbage collection": "collection", suspension: "suspension" };

/** The colours in the style sheet of the kinds that are marks in the lane of their thread. */
export const MARKS = { exception: "exception", "lock contention": "contention" };

/**
 * Runtime events in time order. Times are nanoseconds.
 * @typedef {object} RuntimeEvents
 * @property {number} count
 * @property {number} total the number of events that happened, which can be more than `count`
 * @property {boolean} isLowerBound whether there were more than `total`
 * @property {string[]} kinds the names of the kinds, by their index
 * @property {Uint8Array} kind
 * @property {Float64Array} start
 * @property {Float64Array} duration
 * @property {Uint32Array} process
 * @property {Int32Array} thread -1 where it is unknown
 * @property {Int32Array} node the end of the event's own stack, or -1
 * @property {(event: number) => string} getName the event, and its provider in parentheses
 * @property {(event: number) => string} getFields
 * @property {(event: number) => string} getOwner the thread, or the process where the thread is unknown
 */

/** @returns {RuntimeEvents} */
export function readRuntimeEvents(json, { threads, processes, strings }) {
  const start = readColumn(json.gap, Float64Array);
  for (let event = 1; event < start.length; event += 1) start[event] += start[event - 1];
  const [process, name, fields] = [json.process, json.name, json.fields].map((column) => readColumn(column, Uint32Array));
  const thread = readColumn(json.thread, Int32Array).map((number) => number - 1);
  const getOwner = (event) =>
    thread[event] < 0
      ? `${strings[processes.comm[process[event]]]}, process ${processes.pid[process[event]]}`
      : `${strings[threads.comm[thread[event]]]} ${threads.tid[thread[event]]}`;
  return {
    count: start.length,
    total: json.total,
    isLowerBound: json.is_lower_bound ?? false,
    kinds: json.kinds,
    kind: readColumn(json.kind, Uint8Array),
    start,
    duration: readColumn(json.duration, Float64Array),
    process,
    thread,
    node: readColumn(json.node, Int32Array).map((number) => number - 1),
    getName: (event) => formatEventName(strings[name[event]]),
    getFields: (event) => strings[fields[event]],
    getOwner,
  };
}

/** Puts the provider of `Provider/Event` behind the event, which differs more. */
function formatEventName(/** @type {string} */ name) {
  const slash = name.lastIndexOf("/");
  return slash < 0 ? name : `${name.slice(slash + 1)} (${name.slice(0, slash)})`;
}

/** Lists the events of a kind, in time order. */
export function listEventsOfKind(/** @type {RuntimeEvents} */ { kind, kinds, count }, /** @type {string} */ name) {
  const found = [];
  for (let event = 0; event < count; event += 1) if (kinds[kind[event]] === name) found.push(event);
  return found;
}

/** Creates the legend of the bands and marks that the profile has. */
export function createEventLegend(/** @type {RuntimeEvents} */ events) {
  const used = Object.entries({ ...BANDS, ...MARKS }).filter(([name]) => events.kind.includes(events.kinds.indexOf(name)));
  return used.map(([name, colour]) => createElement("li", {}, createElement("span", { class: `swatch ${colour}` }), name));
}
