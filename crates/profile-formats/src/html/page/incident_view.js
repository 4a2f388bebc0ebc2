// The first view of a profile that was kept for an incident: what changed since it began, and buttons that select its time.

import { buildCallTree, collectSelectedStacks, getTotals } from "./call_tree.js";
import { computeChange } from "./change.js";
import { createChangeCell, createPercentCell } from "./comparison.js";
import {
  areValuesTimes,
  createElement,
  createNameElement,
  formatDuration,
  formatSeconds,
  formatValueAndUnit,
  getElement,
  NUMBER_FORMAT,
} from "./elements.js";
import { countEffectiveSamples, countSamplesByState, listChangedFunctions } from "./incident.js";
import { required } from "./required.js";
import { listSampledStates, STATES } from "./states.js";
import { removeWakers } from "./wakers.js";

/** @import { Change } from "./change.js" */
/** @import { Profile, Timeline } from "./document.js" */
/** @import { ChangedFunctions, Incident, SpanRange } from "./incident.js" */
/** @import { Presenter } from "./shares.js" */

/** The maximum number of functions. */
const MAX_CHANGED_FUNCTIONS = 12;

export class IncidentView {
  /**
   * @param {Incident} incident
   * @param {{presenter: Presenter, onSelectRange: (range: SpanRange) => void,
   *   onSelectFunction: (functionIndex: number) => void}} options
   */
  constructor(incident, options) {
    this.incident = incident;
    this.options = options;
    const { before, since } = incident;
    getElement("incident").hidden = false;
    getElement("select-since").addEventListener("click", () => options.onSelectRange(since));
    getElement("select-before").addEventListener("click", () => options.onSelectRange(required(before)));
    getElement("select-before").disabled = before === null;
  }

  /**
   * Compares the time before with the time since.
   * @param {Profile} profile
   * @param {(range: SpanRange) => Timeline} cutTimeline returns the samples of a range in one span
   * @param {Uint8Array | null} states 1 for each state that is shown; null shows all
   */
  show(profile, cutTimeline, states) {
    const { before, since } = this.incident;
    getElement("changes").hidden = before === null;
    getElement("incident-note").textContent = NO_TIME_BEFORE;
    if (before !== null) this.compare(profile, [cutTimeline(before), cutTimeline(since)], states);
  }

  /** Compares two timelines of one span. */
  compare(/** @type {Profile} */ profile, /** @type {Timeline[]} */ timelines, /** @type {Uint8Array | null} */ states) {
    const { functions, rootsByGrouping } = profile;
    const selection = { from: 0, to: 0, states, separateStates: [] };
    const nodes = collectSelectedStacks({ ...profile, timelines }, selection, rootsByGrouping.none);
    const tree = removeWakers(buildCallTree(nodes, functions, "samples", [1, 1]), functions.isLabel);
    const effective = timelines.map((timeline) => countEffectiveSamples(timeline, states));
    const changed = listChangedFunctions(tree, functions, effective).slice(0, MAX_CHANGED_FUNCTIONS);
    const stateRows = this.createStateRows(profile, timelines, states, effective);
    const rows = [...stateRows, ...changed.map((group) => this.createFunctionRow(group))];
    getElement("changes").replaceChildren(createChangesHead(), createElement("tbody", {}, ...rows));
    getElement("changes").hidden = rows.length === 0;
    const totals = getTotals(tree, 0);
    const facts = timelines.map(({ spanSeconds }, side) => `${CHANGE_SIDES[side]}: ${formatRate(totals[side], spanSeconds)}`);
    getElement("incident-facts").textContent = facts.join(" · ");
    getElement("incident-note").textContent = rows.length > 0 ? CHANGES_NOTE : "No share changed by more than noise.";
  }

  /** Creates a row for each state whose share changed by more than noise. */
  createStateRows(/** @type {Profile} */ { timelines: [timeline], states: names }, timelines, states, effective) {
    const counts = timelines.map((part) => countSamplesByState(part, names.length));
    const shown = listSampledStates(timeline, names).filter((state) => !states || states[state]);
    const totals = counts.map((column) => shown.reduce((sum, state) => sum + column[state], 0));
    return shown.flatMap((state) => {
      const change = computeChange(counts.map((column) => column[state]), totals, effective);
      const swatch = createElement("span", { class: `swatch ${names[state]}` });
      return change.isBeyondNoise ? [createChangeRow(change, swatch, STATES[names[state]])] : [];
    });
  }

  createFunctionRow(/** @type {ChangedFunctions} */ { first, last, count, change }) {
    const { presenter, onSelectFunction } = this.options;
    const createButton = (index) => {
      const name = presenter.functions.name[index];
      const short = createNameElement(presenter.names.shorten(index, MAX_CHANGED_NAME_LENGTH));
      const attributes = { type: "button", title: name, "aria-label": name, onclick: () => onSelectFunction(index) };
      return createElement("button", attributes, short);
    };
    const between = count > 2 ? ` → … ${count - 2} → ` : " → ";
    const path = first === last ? [createButton(first)] : [createButton(first), between, createButton(last)];
    return createChangeRow(change, ...presenter.createNameMarks(first), ...path);
  }
}

/** The names of the two sides. */
const CHANGE_SIDES = ["before", "since"];

const MAX_CHANGED_NAME_LENGTH = 60;

const NO_TIME_BEFORE =
  "The condition held from the start of the profile: there is no time before it to compare with.";

const CHANGES_NOTE =
  "Functions whose share of all samples changed most, without those in nearly all stacks. → leads to a function in the same " +
  "samples, nearer to the leaf. ± is half the width of the 95 % confidence interval.";

function createChangesHead() {
  const createHeading = (name) => createElement("th", { scope: "col", class: name.toLowerCase() }, name);
  return createElement("thead", {}, createElement("tr", {}, ...["Before", "Since", "Change", "Function"].map(createHeading)));
}

function createChangeRow(/** @type {Change} */ change, /** @type {(Node | string)[]} */ ...name) {
  return createElement(
    "tr",
    {},
    createPercentCell(change.before),
    createPercentCell(change.after),
    createChangeCell(change),
    createElement("td", { class: "name" }, ...name),
  );
}

/** Formats the samples of a time with their number in each second. */
function formatRate(/** @type {number} */ total, /** @type {number} */ seconds) {
  const rate = areValuesTimes ? formatDuration(total / seconds) : NUMBER_FORMAT.format(Number((total / seconds).toPrecision(3)));
  return `${formatValueAndUnit(total)} in ${formatSeconds(seconds)} (${rate} each second)`;
}
