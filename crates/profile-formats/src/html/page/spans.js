// Sums samples and runs by span, and cuts them to spans and threads.

import { ON_CPU } from "./lanes.js";

/** @import { Measurement, Timeline } from "./document.js" */
/** @import { Lanes } from "./lanes.js" */

/**
 * The values of each span.
 * @typedef {object} SpanCounts
 * @property {Float64Array} total
 * @property {Float64Array[]} byState the values of each state that has any, by the state
 */

/** @returns {SpanCounts} */
export function createSpanCounts(/** @type {number} */ spans, /** @type {Float64Array[]} */ byState) {
  const total = new Float64Array(spans);
  byState.forEach((column) => column.forEach((value, span) => (total[span] += value)));
  return { total, byState };
}

/**
 * Counts the samples of each span by state, either all or those at marked nodes.
 * @param {Timeline} timeline
 * @param {Uint8Array | null} states
 * @param {Uint8Array | null} marked
 * @returns {SpanCounts}
 */
export function countSamplesBySpan(timeline, states, marked) {
  /** @type {Float64Array[]} */
  const byState = [];
  for (let span = 0; span < timeline.spans; span += 1) {
    for (let entry = timeline.start[span]; entry < timeline.start[span + 1]; entry += 1) {
      const state = timeline.state[entry];
      if ((states && !states[state]) || (marked && !marked[timeline.node[entry]])) continue;
      byState[state] ??= new Float64Array(timeline.spans);
      byState[state][span] += timeline.count[entry];
    }
  }
  return createSpanCounts(timeline.spans, byState);
}

/**
 * Sums the parts of runs in each span by state, either of all or of those at marked nodes.
 * @param {Lanes} lanes
 * @param {RunFilter} runFilter
 * @param {Timeline} timeline
 * @param {Uint8Array | null} states
 * @param {Uint8Array | null} marked
 * @returns {SpanCounts}
 */
export function sumRunsBySpan(lanes, runFilter, { spans, spanSeconds }, states, marked) {
  /** @type {RunSums[]} */
  const sumsOfState = [];
  const unitsPerSpan = spanSeconds / lanes.unitSeconds;
  for (let run = 0; run < lanes.state.length; run += 1) {
    const isSelected = runFilter(run) && (!states || states[lanes.state[run]]);
    if (!isSelected || (marked && !marked[lanes.node[run]])) continue;
    const start = lanes.start[run];
    const end = Math.min(lanes.end[run], spans * unitsPerSpan);
    if (start >= end) continue;
    const [first, last] = [Math.floor(start / unitsPerSpan), Math.ceil(end / unitsPerSpan) - 1];
    const rate = getRate(lanes, run);
    const { sums, covering } = (sumsOfState[lanes.state[run]] ??= createRunSums(spans));
    if (first === last) {
      sums[first] += (end - start) * rate;
    } else {
      sums[first] += ((first + 1) * unitsPerSpan - start) * rate;
      sums[last] += (end - last * unitsPerSpan) * rate;
      covering[first + 1] += rate;
      covering[last] -= rate;
    }
  }
  return createSpanCounts(spans, sumsOfState.map((sums) => finishRunSums(sums, unitsPerSpan)));
}

/**
 * The values of the runs of a state in each span.
 * @typedef {object} RunSums
 * @property {Float64Array} sums of the runs that begin or end in the span
 * @property {Float64Array} covering the change, from span to span, of the rates of the runs that cover the whole span
 */

/** @returns {RunSums} */
function createRunSums(/** @type {number} */ spans) {
  return { sums: new Float64Array(spans), covering: new Float64Array(spans + 1) };
}

function finishRunSums(/** @type {RunSums} */ { sums, covering }, /** @type {number} */ unitsPerSpan) {
  let whole = 0;
  return sums.map((part, span) => {
    whole += covering[span];
    // Sums of fractions leave a rest where nothing is.
    return Math.max(Math.round((part + whole * unitsPerSpan) * 1e6) / 1e6, 0);
  });
}

/** @returns {number} the value of a unit of a run's length */
function getRate(/** @type {Lanes} */ lanes, /** @type {number} */ run) {
  return lanes.value[run] / (lanes.end[run] - lanes.start[run]);
}

/**
 * Whether a run is of the event: time on a CPU between exact waits is not.
 * @typedef {(run: number) => boolean} RunFilter
 */

/**
 * @param {Lanes} lanes
 * @param {Measurement} measurement
 * @param {Uint8Array | null} threads 1 for each thread that is shown; null shows all
 * @returns {RunFilter}
 */
export function createRunFilter(lanes, { unit_ns: unitNs }, threads) {
  return (run) => (unitNs === 0 || lanes.state[run] !== ON_CPU) && (!threads || threads[lanes.thread[run]] === 1);
}

/**
 * Returns the samples of a range of spans as a timeline of one span.
 * @param {Timeline} timeline
 * @param {{from: number, to: number}} range spans, the last one included
 * @returns {Timeline}
 */
export function sliceTimeline(timeline, { from, to }) {
  const start = Uint32Array.of(timeline.start[from], timeline.start[to + 1]);
  return { ...timeline, spanSeconds: (to + 1 - from) * timeline.spanSeconds, spans: 1, start };
}

/**
 * Cuts the runs to a range of spans. The result has one span.
 * @param {Lanes} lanes
 * @param {RunFilter} runFilter
 * @param {Timeline} timeline
 * @param {{from: number, to: number}} range spans, the last one included
 * @returns {Timeline}
 */
export function cutRuns(lanes, runFilter, { spanSeconds }, range) {
  const [from, to] = [range.from, range.to + 1].map((span) => (span * spanSeconds) / lanes.unitSeconds);
  const overlap = (run) => Math.min(lanes.end[run], to) - Math.max(lanes.start[run], from);
  const runs = [...lanes.state.keys()].filter((run) => runFilter(run) && overlap(run) > 0);
  return {
    spanSeconds: (range.to + 1 - range.from) * spanSeconds,
    spans: 1,
    start: Uint32Array.of(0, runs.length),
    thread: Uint32Array.from(runs, (run) => lanes.thread[run]),
    state: Uint8Array.from(runs, (run) => lanes.state[run]),
    node: Int32Array.from(runs, (run) => lanes.node[run]),
    count: Float64Array.from(runs, (run) => Math.round(overlap(run) * getRate(lanes, run))),
  };
}

/**
 * The samples of the marked threads.
 * @param {Timeline} timeline
 * @param {Uint8Array} mask
 * @returns {Timeline}
 */
export function keepThreads(timeline, mask) {
  const start = new Uint32Array(timeline.start.length);
  const kept = new Uint32Array(timeline.thread.length);
  let size = 0;
  for (let span = 0; span < timeline.spans; span += 1) {
    for (let entry = timeline.start[span]; entry < timeline.start[span + 1]; entry += 1) {
      if (mask[timeline.thread[entry]]) kept[size++] = entry;
    }
    start[span + 1] = size;
  }
  const gather = (column) => column.constructor.from(kept.subarray(0, size), (entry) => column[entry]);
  const [thread, state, node, count] = ["thread", "state", "node", "count"].map((name) => gather(timeline[name]));
  return { ...timeline, start, thread, state, node, count };
}
