// Presents the difference of two profiles: shares before and after, and boxes coloured by change.

import {
  classifyChange,
  computeChange,
  describeOnlySide,
  DIRECTION_MARKS,
  DIRECTION_TEXTS,
  formatChange,
  formatPoints,
} from "./change.js";
import { ChangeColours, KINDS } from "./colours.js";
import { joinWithSeparators } from "./details.js";
import { createElement, formatValue } from "./elements.js";

/** @import { CallTree, SampleCounts } from "./call_tree.js" */
/** @import { Change } from "./change.js" */
/** @import { Box } from "./details.js" */
/** @import { Functions } from "./document.js" */
/** @import { BoxPlace } from "./flame.js" */
/** @import { NameShortener } from "./names.js" */
/** @import { Column } from "./shares.js" */

/** The weight of a sample of each profile. With `both`, equal shares of either profile have equal widths. */
const SAMPLE_WEIGHTS = {
  both: ([before, after]) => [0.5 / Math.max(before, 1), 0.5 / Math.max(after, 1)],
  before: () => [1, 0],
  after: () => [0, 1],
};

export class DifferencePresenter {
  /**
   * @param {Functions} functions
   * @param {NameShortener} names
   * @param {number[]} totals all samples before and after, which are 100 % of every share, also in a zoomed graph
   * @param {number[]} effectiveSamples the numbers of samples that determine the noise
   */
  constructor(functions, names, totals, effectiveSamples) {
    this.functions = functions;
    this.names = names;
    this.totals = totals;
    this.effectiveSamples = effectiveSamples;
    this.widths = "both";
    this.colours = new ChangeColours();
    const change =
      (key) =>
      ({ sides }, functionIndex) =>
        this.computeChange(sides, key, functionIndex);
    const sizes = (key, samples) =>
      samples.sides[0][key].map((_, functionIndex) => Math.abs(change(key)(samples, functionIndex).points));
    const byPoints = (key, other) => (samples) => createComparator(sizes(key, samples), sizes(other, samples));
    const byShare = (side) => (samples) => createComparator(samples.sides[side].self);
    const share = (key) => (samples, functionIndex) => createPercentCell(change("self")(samples, functionIndex)[key]);
    const points = (key) => (samples, functionIndex) => createChangeCell(change(key)(samples, functionIndex));
    /** @type {Column[]} */
    this.columns = [
      {
        key: "before",
        label: "Self before",
        initialDirection: "descending",
        compare: byShare(0),
        cell: share("before"),
      },
      { key: "after", label: "Self after", initialDirection: "descending", compare: byShare(1), cell: share("after") },
      {
        key: "change",
        label: "Self change",
        initialDirection: "descending",
        compare: byPoints("self", "total"),
        cell: points("self"),
      },
      {
        key: "change total",
        label: "Total change",
        initialDirection: "descending",
        compare: byPoints("total", "self"),
        cell: points("total"),
      },
    ];
  }

  readStyleColours(background) {
    this.colours.readStyleColours(background);
  }

  getSampleWeights() {
    return SAMPLE_WEIGHTS[this.widths](this.totals);
  }

  getTableTotals() {
    return this.totals;
  }

  /** Computes the change of a node or a function, by its index. */
  computeChange(/** @type {SampleCounts[]} */ sides, /** @type {"self" | "total"} */ key, /** @type {number} */ at) {
    return computeChange([sides[0][key][at], sides[1][key][at]], this.totals, this.effectiveSamples);
  }

  fillBox(context, /** @type {CallTree} */ tree, /** @type {number} */ node, isFaded, /** @type {BoxPlace} */ place) {
    context.fillStyle = this.colours.getColour(this.computeChange(tree.sides, "total", node), isFaded);
    context.fillRect(place.left, place.top, place.width, place.height);
  }

  getBoxText(/** @type {CallTree} */ tree, /** @type {number} */ node, maxLength) {
    const direction = classifyChange(this.computeChange(tree.sides, "total", node));
    if (direction === "noise") return this.names.shorten(tree.function[node], maxLength);
    return `${DIRECTION_MARKS[direction]} ${this.names.shorten(tree.function[node], maxLength - 2)}`;
  }

  createNameMarks() {
    return [];
  }

  createLegend() {
    const labels = { more: "more after", less: "less after", noise: DIRECTION_TEXTS.noise };
    const createSwatch = (direction) => createElement("span", { class: `swatch ${direction}` });
    const createItem = ([direction, label]) =>
      createElement("li", {}, createSwatch(direction), `${DIRECTION_MARKS[direction]} ${label}`);
    const intensity = createElement("li", {}, "stronger: a larger part of the box changed");
    return [...Object.entries(labels).map(createItem), intensity];
  }

  createDetails(/** @type {Box} */ { tree: { sides }, node }) {
    const counts = (key) => sides.map((side) => side[key][node]);
    const total = this.createChangeLine("total", counts("total"));
    return [
      total,
      counts("self").some((count) => count > 0) ? this.createChangeLine("self", counts("self")) : ["self: no samples"],
    ];
  }

  /** Creates a line with the samples before and after and their change. */
  createChangeLine(/** @type {string} */ label, /** @type {number[]} */ counts) {
    const change = computeChange(counts, this.totals, this.effectiveSamples);
    const direction = classifyChange(change);
    const formatSide = (name, side, share) => `${name} ${share.toFixed(2)} % (${formatValue(counts[side])})`;
    return joinWithSeparators([
      `${label}: ${formatSide("before", 0, change.before)}`,
      formatSide("after", 1, change.after),
      createElement("strong", { class: direction }, `${formatChange(change)} points`),
      [DIRECTION_TEXTS[direction], describeOnlySide(counts)].filter(Boolean).join(", "),
    ]);
  }

  describeBox(/** @type {CallTree} */ { function: functions, sides }, /** @type {number} */ node) {
    const { name, kind } = this.functions;
    const functionIndex = functions[node];
    return [name[functionIndex], describeChange(this.computeChange(sides, "total", node)), KINDS[kind[functionIndex]]]
      .filter(Boolean)
      .join(", ");
  }

  describeSamples(/** @type {number[]} */ counts) {
    return describeChange(computeChange(counts, this.totals, this.effectiveSamples));
  }

  describeMatches(/** @type {number[]} */ counts) {
    return this.describeSamples(counts);
  }
}

/** Creates a comparator of functions by the first of these columns in which they differ. */
function createComparator(/** @type {Float64Array[]} */ ...columns) {
  return (a, b) => {
    const column = columns.find((numbers) => numbers[a] !== numbers[b]) ?? columns[0];
    return column[a] - column[b];
  };
}

function describeChange(/** @type {Change} */ change) {
  const shares = `before ${change.before.toFixed(2)} %, after ${change.after.toFixed(2)} %`;
  return `${shares}, ${formatChange(change)} points: ${DIRECTION_TEXTS[classifyChange(change)]}`;
}

export function createPercentCell(/** @type {number} */ percent) {
  return createElement("td", { class: "number" }, createElement("span", { class: "share" }, `${percent.toFixed(2)} %`));
}

export function createChangeCell(/** @type {Change} */ change) {
  const direction = classifyChange(change);
  const noise = createElement("span", { class: "count" }, `±${change.noise.toFixed(2)}`);
  const points = createElement(
    "span",
    { class: `share ${direction}` },
    `${DIRECTION_MARKS[direction]} ${formatPoints(change.points)}`,
  );
  return createElement("td", { class: "number", title: DIRECTION_TEXTS[direction] }, points, noise);
}
