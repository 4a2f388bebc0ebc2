// Presents one profile: sample counts and shares, and boxes coloured by kind of code.

import { MAX_STEP_LENGTH } from "./breadcrumbs.js";
import { getSwatch, KindColours, KINDS, WAIT_GROUPS } from "./colours.js";
import { joinWithSeparators } from "./details.js";
import {
  createElement,
  createNameElement,
  formatPercent,
  formatShortValue,
  formatValue,
  formatValueAndUnit,
} from "./elements.js";
import { StateColours } from "./state_colours.js";
import { createStateLegend } from "./states.js";

/** @import { CallTree, SampleCounts } from "./call_tree.js" */
/** @import { DifferencePresenter } from "./comparison.js" */
/** @import { Box } from "./details.js" */
/** @import { Functions } from "./document.js" */
/** @import { BoxPlace } from "./flame.js" */
/** @import { NameShortener } from "./names.js" */

/**
 * Formats and colours samples, of one profile or of the difference of two.
 * @typedef {ProfilePresenter | DifferencePresenter} Presenter
 */

/**
 * A column of the function table.
 * @typedef {object} Column
 * @property {string} key
 * @property {string} label
 * @property {"ascending" | "descending"} initialDirection the order after the first click on the heading
 * @property {(samples: FunctionSamples) => (a: number, b: number) => number} compare
 * @property {(samples: FunctionSamples, functionIndex: number) => HTMLElement} cell
 */

/**
 * The samples of each function in the zoomed subtree.
 * @typedef {object} FunctionSamples
 * @property {SampleCounts[]} sides the counts in each profile, by function index
 * @property {number[]} totals the samples of each profile that are 100 %
 */

export class ProfilePresenter {
  /**
   * @param {Functions} functions
   * @param {NameShortener} names
   * @param {string[]} stateNames
   */
  constructor(functions, names, stateNames) {
    this.functions = functions;
    this.names = names;
    this.colours = new KindColours(functions);
    this.stateColours = new StateColours(stateNames);
    /** @type {"state" | "kind"} what the colours of boxes show, where the samples have several states */
    this.colouring = "state";
    const by =
      (key, other) =>
      (/** @type {FunctionSamples} */ { sides: [counts] }) =>
      (a, b) =>
        counts[key][a] - counts[key][b] || counts[other][a] - counts[other][b];
    const cell =
      (key) =>
      (/** @type {FunctionSamples} */ { sides: [counts], totals: [all] }, functionIndex) =>
        createShareCell(counts[key][functionIndex], all);
    /** @type {Column[]} */
    this.columns = [
      { key: "self", label: "Self", initialDirection: "descending", compare: by("self", "total"), cell: cell("self") },
      {
        key: "total",
        label: "Total",
        initialDirection: "descending",
        compare: by("total", "self"),
        cell: cell("total"),
      },
    ];
  }

  readStyleColours(background) {
    this.colours.readStyleColours(background);
    this.stateColours.readStyleColours(background);
  }

  /** The weight of a sample of each profile in the widths of boxes. */
  getSampleWeights() {
    return [1];
  }

  /** The samples of each profile that are 100 % in the function table. */
  getTableTotals(/** @type {CallTree} */ tree, /** @type {number} */ zoomed) {
    return [tree.sides[0].total[zoomed]];
  }

  fillBox(context, /** @type {CallTree} */ tree, /** @type {number} */ node, isFaded, /** @type {BoxPlace} */ place) {
    const isWait = this.functions.kind[tree.function[node]] === "wait";
    if (this.colouring === "state" && tree.states.length > 0 && !isWait) {
      this.stateColours.fillBox(context, tree, node, isFaded, place);
    } else {
      context.fillStyle = this.colours.getColour(tree.function[node], isFaded);
      context.fillRect(place.left, place.top, place.width, place.height);
    }
  }

  getBoxText(/** @type {CallTree} */ tree, /** @type {number} */ node, maxLength) {
    return this.names.shorten(tree.function[node], maxLength);
  }

  /** Creates the elements before a function's name in the table. */
  createNameMarks(functionIndex) {
    const title = KINDS[this.functions.kind[functionIndex]];
    return [createElement("span", { class: `swatch ${getSwatch(this.functions, functionIndex)}`, title })];
  }

  /**
   * Creates the legend of the states of the samples, if boxes have their colours, else of the kinds of code, and of the causes of
   * waits.
   */
  createLegend(/** @type {string[]} */ sampledStates) {
    const isByState = sampledStates.length > 0 && this.colouring === "state";
    return [...(isByState ? createStateLegend(sampledStates) : this.createKindLegend()), ...this.createWaitLegend()];
  }

  createKindLegend() {
    const used = new Set(this.functions.kind);
    const kinds = Object.entries(KINDS).filter(([kind]) => kind !== "wait" && used.has(kind));
    return kinds.map(([kind, label]) => createLegendItem(kind, label));
  }

  createWaitLegend() {
    const used = new Set(Object.values(this.functions.waitGroup));
    const groups = Object.entries(WAIT_GROUPS).filter(([group]) => used.has(group));
    return groups.map(([group, label], index) => createLegendItem(`wait-${group}`, index === 0 ? `waits for: ${label}` : label));
  }

  /** Creates the lines of samples for a box. */
  createDetails(/** @type {Box} */ { tree, node, zoomed, totals: [all] }) {
    const [{ self, total }] = tree.sides;
    /** @type {(Node | string)[]} */
    const shares = [`${formatPercent(total[node], all)} of all`];
    if (total[zoomed] !== all) {
      const above = createNameElement(this.names.shorten(tree.function[zoomed], MAX_STEP_LENGTH));
      shares.push(createElement("span", {}, `${formatPercent(total[node], total[zoomed])} of `, above));
    }
    const own = `self ${formatValue(self[node])} (${formatPercent(self[node], all)})`;
    const states = this.stateColours.describeShares(tree, node);
    const strong = createElement("strong", {}, formatValueAndUnit(total[node]));
    return [joinWithSeparators([strong, ...shares, own, ...(states ? [states] : [])])];
  }

  /** Describes a box for a screen reader. */
  describeBox(/** @type {CallTree} */ tree, /** @type {number} */ node) {
    const [{ self, total }] = tree.sides;
    const functionIndex = tree.function[node];
    const shares = `${formatPercent(total[node], total[0])}, self ${formatPercent(self[node], total[0])}`;
    const states = this.stateColours.describeShares(tree, node);
    const { name, kind } = this.functions;
    return [name[functionIndex], shares, KINDS[kind[functionIndex]], states].filter(Boolean).join(", ");
  }

  /** Describes the samples of a function as a part of the whole graph. */
  describeSamples(/** @type {number[]} */ [count], /** @type {number[]} */ [all]) {
    return `${formatValueAndUnit(count)}, ${formatPercent(count, all)} of all`;
  }

  /** Describes the samples that match the search, as a part of the zoomed subtree. */
  describeMatches(/** @type {number[]} */ [count], /** @type {CallTree} */ tree, /** @type {number} */ zoomed) {
    return `${formatPercent(count, tree.sides[0].total[zoomed])} of samples`;
  }
}

function createLegendItem(/** @type {string} */ swatch, /** @type {string} */ label) {
  return createElement("li", {}, createElement("span", { class: `swatch ${swatch}` }), label);
}

export function createShareCell(count, totals) {
  const share = createElement("span", { class: "share" }, formatPercent(count, totals));
  return createElement(
    "td",
    { class: "number" },
    share,
    createElement("span", { class: "count" }, formatShortValue(count)),
  );
}
