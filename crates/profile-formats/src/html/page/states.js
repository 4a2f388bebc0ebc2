// The states of threads: their names and the choice of states.

import { createElement } from "./elements.js";
import { ON_CPU } from "./lanes.js";
import { required } from "./required.js";

/** @import { Profile, Timeline } from "./document.js" */

/** The names of the states, in the order of the legend. */
export const STATES = {
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
export const ALL_STATES = { name: "CPU and waiting", mask: null };

/** Lists the states of the samples; none if all samples have the same state. */
export function listSampledStates(/** @type {Timeline} */ { state: sampled }, /** @type {string[]} */ states) {
  const used = [...states.keys()].filter((state) => sampled.includes(state));
  return used.length < 2 ? [] : used;
}

/**
 * @param {number[]} sampled the states of the samples
 * @param {string[]} states
 * @returns {StateChoice[]} all, on CPU, waiting, and each state of the samples
 */
export function listStateChoices(sampled, states) {
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
export function listLaneStates(/** @type {Profile} */ { lanes, states }) {
  return states.filter((_, state) => required(lanes).state.includes(state));
}

/** Creates the legend of states. */
export function createStateLegend(/** @type {string[]} */ states) {
  return states.map((state) => createElement("li", {}, createElement("span", { class: `swatch ${state}` }), STATES[state]));
}
