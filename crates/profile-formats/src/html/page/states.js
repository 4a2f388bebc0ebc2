// The states of threads: their names, the choice of states, and the parts of runs in a time range.

/** The names of the states, in the order of the legend. */
const STATES = {
  "on-cpu": "on CPU",
  runnable: "runnable",
  throttled: "throttled",
  blocked: "blocked",
  disk: "disk",
  stopped: "stopped",
};

/**
 * A part of the samples.
 * @typedef {object} Selection
 * @property {number} from the first span
 * @property {number} to the last span
 * @property {Uint8Array | null} states 1 for each state that is shown; null shows all
 * @property {number[]} separateStates the states that are counted separately
 */

/**
 * The states that are shown.
 * @typedef {object} StateChoice
 * @property {string} name
 * @property {Uint8Array | null} mask 1 for each state that is shown; null shows all
 */

/** @type {StateChoice} */
const ALL_STATES = { name: "CPU and waiting", mask: null };

/** Lists the states of the samples; none if all samples have the same state. */
function listSampledStates(/** @type {Timeline} */ { state: sampled }, /** @type {string[]} */ states) {
  const used = [...states.keys()].filter((state) => sampled.includes(state));
  return used.length < 2 ? [] : used;
}

/**
 * @param {number[]} sampled the states of the samples
 * @param {string[]} states
 * @returns {StateChoice[]} all, on CPU, waiting, and each state of the samples
 */
function listStateChoices(sampled, states) {
  if (sampled.length === 0) return [ALL_STATES];
  const choose = (name, isShown) => ({
    name,
    mask: Uint8Array.from(states, (_, state) => Number(sampled.includes(state) && isShown(state))),
  });
  const single = sampled.map((state) => choose(STATES[states[state]], (other) => other === state));
  const waiting = choose("waiting", (state) => state !== ON_CPU);
  if (!sampled.includes(ON_CPU)) return [{ ...ALL_STATES, name: "all" }, ...single];
  return single.length === 2 ? [ALL_STATES, ...single] : [ALL_STATES, single[0], waiting, ...single.slice(1)];
}

/** Lists the names of the states in the lanes. */
function listLaneStates(/** @type {Profile} */ { lanes, states }) {
  return states.filter((_, state) => lanes.state.includes(state));
}

/** Creates the legend of states. */
function createStateLegend(/** @type {string[]} */ states) {
  return states.map((state) => createElement("li", {}, createElement("span", { class: `swatch ${state}` }), STATES[state]));
}

/**
 * Sums the parts of runs in each span by state, either of all or of those at marked nodes.
 * @param {Lanes} lanes
 * @param {RunFilter} isOfEvent
 * @param {Timeline} timeline
 * @param {Uint8Array | null} states
 * @param {Uint8Array | null} marked
 * @returns {SpanCounts}
 */
function sumRunsBySpan(lanes, isOfEvent, { spans, spanSeconds }, states, marked) {
  /** @type {RunSums[]} */
  const sumsOfState = [];
  const unitsPerSpan = spanSeconds / lanes.unitSeconds;
  for (let run = 0; run < lanes.state.length; run += 1) {
    const isSelected = isOfEvent(run) && (!states || states[lanes.state[run]]);
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
function getRunFilter(lanes, { unit_ns: unitNs }, threads) {
  return (run) => (unitNs === 0 || lanes.state[run] !== ON_CPU) && (!threads || threads[lanes.thread[run]] === 1);
}

/**
 * Returns the samples of a range of spans as a timeline of one span.
 * @param {Timeline} timeline
 * @param {{from: number, to: number}} range spans, the last one included
 * @returns {Timeline}
 */
function sliceTimeline(timeline, { from, to }) {
  const start = Uint32Array.of(timeline.start[from], timeline.start[to + 1]);
  return { ...timeline, spanSeconds: (to + 1 - from) * timeline.spanSeconds, spans: 1, start };
}

/**
 * Cuts the runs to a range of spans. The result has one span.
 * @param {Lanes} lanes
 * @param {RunFilter} isOfEvent
 * @param {Timeline} timeline
 * @param {{from: number, to: number}} range spans, the last one included
 * @returns {Timeline}
 */
function cutRuns(lanes, isOfEvent, { spanSeconds }, range) {
  const [from, to] = [range.from, range.to + 1].map((span) => (span * spanSeconds) / lanes.unitSeconds);
  const overlap = (run) => Math.min(lanes.end[run], to) - Math.max(lanes.start[run], from);
  const runs = [...lanes.state.keys()].filter((run) => isOfEvent(run) && overlap(run) > 0);
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
