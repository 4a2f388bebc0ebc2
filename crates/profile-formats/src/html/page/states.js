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
 */

/**
 * The states that are shown.
 * @typedef {object} StateChoice
 * @property {string} name
 * @property {Uint8Array | null} mask 1 for each state that is shown; null shows all
 * @property {number | null} state the state, if it is one
 */

/** @type {StateChoice} */
const ALL_STATES = { name: "CPU and waiting", mask: null, state: null };

/** @returns {StateChoice[]} all, on CPU, waiting, and each state of the samples */
function listStateChoices(/** @type {Timeline} */ { state: sampled }, /** @type {string[]} */ states) {
  const used = states.map((_, state) => sampled.includes(state));
  const choose = (name, isShown) => {
    const mask = Uint8Array.from(states, (state, index) => Number(used[index] && isShown(state)));
    const shown = [...mask.keys()].filter((index) => mask[index]);
    return { name, mask, state: shown.length === 1 ? shown[0] : null };
  };
  const single = states.filter((_, index) => used[index]).map((name) => choose(STATES[name], (state) => state === name));
  if (single.length < 2) return [ALL_STATES];
  const waiting = choose("waiting", (state) => state !== "on-cpu");
  const hasCpu = used[states.indexOf("on-cpu")];
  if (!hasCpu) return [{ ...ALL_STATES, name: "all" }, ...single];
  return single.length === 2 ? [ALL_STATES, ...single] : [ALL_STATES, single[0], waiting, ...single.slice(1)];
}

/** Creates the legend of the states in the lanes. */
function createStateLegend(/** @type {Profile} */ { lanes, states }) {
  const used = states.filter((_, state) => lanes.state.includes(state));
  return used.map((state) => createElement("li", {}, createElement("span", { class: `swatch ${state}` }), STATES[state]));
}

/**
 * Sums the parts of runs in each span, either of all or of those at marked nodes.
 * @param {Lanes} lanes
 * @param {RunFilter} isOfEvent
 * @param {Timeline} timeline
 * @param {Uint8Array | null} states
 * @param {Uint8Array | null} marked
 */
function sumRunsBySpan(lanes, isOfEvent, { spans, spanSeconds }, states, marked) {
  const sums = new Float64Array(spans);
  /** The change, from span to span, of the rates of the runs that cover the whole span. */
  const covering = new Float64Array(spans + 1);
  const unitsPerSpan = spanSeconds / lanes.unitSeconds;
  for (let run = 0; run < lanes.state.length; run += 1) {
    const isSelected = isOfEvent(run) && (!states || states[lanes.state[run]]);
    if (!isSelected || (marked && !marked[lanes.node[run]])) continue;
    const start = lanes.start[run];
    const end = Math.min(lanes.end[run], spans * unitsPerSpan);
    if (start >= end) continue;
    const [first, last] = [Math.floor(start / unitsPerSpan), Math.ceil(end / unitsPerSpan) - 1];
    const rate = getRate(lanes, run);
    if (first === last) {
      sums[first] += (end - start) * rate;
    } else {
      sums[first] += ((first + 1) * unitsPerSpan - start) * rate;
      sums[last] += (end - last * unitsPerSpan) * rate;
      covering[first + 1] += rate;
      covering[last] -= rate;
    }
  }
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

/** @returns {RunFilter} */
function getRunFilter(/** @type {Lanes} */ lanes, /** @type {Measurement} */ { unit_ns: unitNs }) {
  return (run) => unitNs === 0 || lanes.state[run] !== ON_CPU;
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
