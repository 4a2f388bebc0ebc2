// A stack as a list of functions, and the nearest stack of a thread to a time.

import { createElement, createNameElement } from "./elements.js";
import { findRun } from "./lanes.js";

/** @import { Profile, Timeline } from "./document.js" */
/** @import { Lanes } from "./lanes.js" */

/**
 * Shows a stack, leaf first.
 * @param {HTMLElement} holder
 * @param {string} title
 * @param {string[]} names root first
 * @param {(() => void) | null} onZoom shows the stack in the flame graph
 */
export function showStack(holder, title, names, onZoom) {
  const button = onZoom && createElement("button", { type: "button", onclick: onZoom }, "In the flame graph");
  const items = names.toReversed().map((name) => createElement("li", {}, createNameElement(name)));
  const heading = createElement("p", {}, createNameElement(title), ...(button ? [" ", button] : []));
  holder.replaceChildren(heading, createElement("ol", {}, ...items));
}

/**
 * The threads of the page, by index. A thread that changed its name has an index for each name.
 * @typedef {{process: number[], tid: number[]}} Threads
 */

/** A text that is equal for indices of the same thread. */
export function formatThreadKey(/** @type {number} */ process, /** @type {number} */ tid) {
  return `${process} ${tid}`;
}

/**
 * A stack of a thread near a time.
 * @typedef {object} NearStack
 * @property {number} node
 * @property {number} thread
 * @property {number} distanceSeconds 0 for a stack at the time
 */

/**
 * Finds the stack of a thread that is nearest to a time: in its lane, else among the samples of the shown event.
 * @returns {NearStack | null}
 */
export function findNearestStack(/** @type {Profile} */ profile, /** @type {number} */ thread, /** @type {number} */ seconds) {
  const { threads, lanes } = profile;
  const key = formatThreadKey(threads.process[thread], threads.tid[thread]);
  const lane = lanes?.names.findIndex((_, index) => formatThreadKey(lanes.process[index], lanes.tid[index]) === key) ?? -1;
  const inLane = lanes && lane >= 0 ? findNearestRun(lanes, lane, seconds) : null;
  const isThread = Uint8Array.from(threads.tid, (tid, index) => Number(formatThreadKey(threads.process[index], tid) === key));
  return inLane ?? findNearestEntry(profile.timelines[0], isThread, seconds);
}

/** @returns {NearStack | null} */
function findNearestRun(/** @type {Lanes} */ lanes, /** @type {number} */ lane, /** @type {number} */ seconds) {
  const time = seconds / lanes.unitSeconds;
  const after = findRun(lanes, lane, time);
  const candidates = [after - 1, after].filter((run) => run >= lanes.first[lane] && run < lanes.last[lane]);
  const measure = (run) => Math.max(lanes.start[run] - time, time - lanes.end[run], 0);
  const [run] = candidates.sort((one, other) => measure(one) - measure(other));
  if (run === undefined) return null;
  return { node: lanes.node[run], thread: lanes.thread[run], distanceSeconds: measure(run) * lanes.unitSeconds };
}

/** @returns {NearStack | null} the most frequent stack of a thread in the nearest span */
function findNearestEntry(/** @type {Timeline} */ timeline, /** @type {Uint8Array} */ isThread, /** @type {number} */ seconds) {
  const { spans, spanSeconds, start, thread, node, count } = timeline;
  const middle = Math.min(Math.floor(seconds / spanSeconds), spans - 1);
  const findInSpan = (span) => {
    let best = -1;
    for (let entry = start[span]; entry < start[span + 1]; entry += 1) {
      if (isThread[thread[entry]] && (best < 0 || count[entry] > count[best])) best = entry;
    }
    return best;
  };
  for (let distance = 0; distance < spans; distance += 1) {
    const near = [middle - distance, middle + distance].filter((span) => span >= 0 && span < spans);
    const found = near.map(findInSpan).find((entry) => entry >= 0);
    if (found !== undefined) return { node: node[found], thread: thread[found], distanceSeconds: distance * spanSeconds };
  }
  return null;
}
