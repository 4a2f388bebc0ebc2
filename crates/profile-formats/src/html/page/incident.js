// The incident for which the profile was kept: the time before it, and the functions whose share changed since it began.

import { getTotals } from "./call_tree.js";
import { computeChange } from "./change.js";
import { countFunctionSamples } from "./hot_functions.js";
import { ON_CPU } from "./lanes.js";
import { listAncestors } from "./tree_items.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { Change } from "./change.js" */
/** @import { Functions, Measurement, Timeline } from "./document.js" */

/**
 * Spans of the timeline, the last one included.
 * @typedef {{from: number, to: number}} SpanRange
 */

/**
 * @typedef {object} Incident
 * @property {number} seconds the moment of the incident
 * @property {SpanRange | null} before the time before its condition held; null if it held from the start
 * @property {SpanRange} since the time from which on its condition held
 */

/** @returns {Incident | null} */
export function readIncident(/** @type {Measurement} */ measurement, /** @type {Timeline} */ { spans, spanSeconds }) {
  const { incident_ns: ns, incident_since_ns: sinceNs = ns } = measurement;
  if (ns === undefined) return null;
  const first = Math.min(Math.floor(sinceNs / 1e9 / spanSeconds + 1e-6), spans - 1);
  return {
    seconds: ns / 1e9,
    before: first > 0 ? { from: 0, to: first - 1 } : null,
    since: { from: first, to: spans - 1 },
  };
}

/** Functions with this share of both sides are in nearly all stacks: the roots of threads, the main loop. */
const NEARLY_ALL_PERCENT = 90;

/**
 * Functions in the same samples: the first one calls the others, the last one is nearest to the leaf.
 * @typedef {object} ChangedFunctions
 * @property {number} first
 * @property {number} last
 * @property {number} count
 * @property {Change} change
 */

/**
 * Lists the functions whose share of the total changed by more than noise, the largest change first.
 * @param {CallTree} tree the samples before and since
 * @param {Functions} functions
 * @param {number[]} effectiveSamples the numbers of samples that determine the noise
 * @returns {ChangedFunctions[]}
 */
export function listChangedFunctions(tree, functions, effectiveSamples) {
  const counts = countFunctionSamples(tree, 0, functions.name.length).map(({ total }) => total);
  const totals = getTotals(tree, 0);
  const firstNode = findFirstNodes(tree, functions.name.length);
  const changes = [];
  for (let index = 0; index < functions.count; index += 1) {
    if (firstNode[index] < 0) continue;
    const change = computeChange(counts.map((column) => column[index]), totals, effectiveSamples);
    const isNearlyAll = Math.min(change.before, change.after) >= NEARLY_ALL_PERCENT;
    if (change.isBeyondNoise && !isNearlyAll) changes.push({ index, change });
  }
  const depthOf = ({ index }) => tree.depth[firstNode[index]];
  const sizeOf = ({ change: { points } }) => Math.abs(points);
  changes.sort((one, other) => sizeOf(other) - sizeOf(one) || depthOf(one) - depthOf(other));
  const isSame = (one, other) => counts.every((column) => column[one] === column[other]);
  /** @type {Map<number, ChangedFunctions>} */
  const groupOf = new Map();
  for (const { index, change } of changes) {
    const callers = listAncestors(tree, firstNode[index]).map((node) => tree.function[node]);
    const caller = callers.findLast((candidate) => groupOf.has(candidate) && isSame(candidate, index));
    const group = (caller === undefined ? undefined : groupOf.get(caller)) ?? { first: index, last: index, count: 0, change };
    groupOf.set(index, Object.assign(group, { last: index, count: group.count + 1 }));
  }
  return [...new Set(groupOf.values())];
}

/** Finds the first node of each function, or -1. */
function findFirstNodes(/** @type {CallTree} */ tree, /** @type {number} */ functionCount) {
  const first = new Int32Array(functionCount).fill(-1);
  for (let node = tree.size - 1; node >= 0; node -= 1) first[tree.function[node]] = node;
  return first;
}

/**
 * Computes the effective number of samples of the first span, as `Profile::effective_samples` does: each tick on a CPU is
 * one; waits differ in length, and the ticks of one wait are not independent.
 * @param {Timeline} timeline
 * @param {Uint8Array | null} states
 */
export function countEffectiveSamples({ start, state, count }, states) {
  let [sum, squares] = [0, 0];
  for (let entry = start[0]; entry < start[1]; entry += 1) {
    if (states && !states[state[entry]]) continue;
    sum += count[entry];
    squares += state[entry] === ON_CPU ? count[entry] : count[entry] ** 2;
  }
  return squares > 0 ? Math.round(sum ** 2 / squares) : 0;
}

/** Sums the samples of the first span by state. */
export function countSamplesByState({ start, state, count }, /** @type {number} */ stateCount) {
  const counts = new Float64Array(stateCount);
  for (let entry = start[0]; entry < start[1]; entry += 1) counts[state[entry]] += count[entry];
  return counts;
}
