// What the samples of one profile are told as: numbers and shares, boxes in the colours of their kinds.

/**
 * How the page tells of samples: `Shares` of one profile, or a `Comparison` of two.
 * @typedef {Shares | Comparison} Reading
 */

/**
 * A column of the table of functions.
 * @typedef {object} Column
 * @property {string} key
 * @property {string} label
 * @property {"ascending" | "descending"} first how it sorts when it is chosen
 * @property {(hot: Hot) => (a: number, b: number) => number} compare
 * @property {(hot: Hot, which: number) => HTMLElement} cell
 */

/**
 * The samples of functions.
 * @typedef {object} Hot
 * @property {Counts[]} sides in each profile
 * @property {number[]} of the samples of each profile that they are a share of
 */

class Shares {
  constructor(/** @type {Functions} */ functions, /** @type {FittingNames} */ names) {
    this.functions = functions;
    this.names = names;
    this.colours = new KindColours(functions);
    const by = (key, other) => ({ sides: [counts] }) => (a, b) => counts[key][a] - counts[key][b] || counts[other][a] - counts[other][b];
    const cell = (key) => ({ sides: [counts], of: [of] }, which) => shareCell(counts[key][which], of);
    /** @type {Column[]} */
    this.columns = [
      { key: "self", label: "Self", first: "descending", compare: by("self", "total"), cell: cell("self") },
      { key: "total", label: "Total", first: "descending", compare: by("total", "self"), cell: cell("total") },
    ];
  }

  readStyle(background) {
    this.colours.readStyle(background);
  }

  /** What a sample weighs in the widths of boxes. */
  factors() {
    return [1];
  }

  /** What the samples of functions below a node are a share of. */
  shareOf(/** @type {CallTree} */ tree, /** @type {number} */ zoomed) {
    return [tree.sides[0].total[zoomed]];
  }

  colour(/** @type {CallTree} */ tree, /** @type {number} */ node, isFaded) {
    return this.colours.box(tree.function[node], isFaded);
  }

  fitting(/** @type {CallTree} */ tree, /** @type {number} */ node, columns) {
    return this.names.fitting(tree.function[node], columns);
  }

  /** What stands beside a function's name. */
  marks(which) {
    const kind = this.functions.kind[which];
    return [element("span", { class: `swatch ${kind}`, title: KINDS[kind] })];
  }

  legend() {
    const used = new Set(this.functions.kind);
    const kinds = Object.entries(KINDS).filter(([kind]) => used.has(kind));
    return kinds.map(([kind, label]) => element("li", {}, element("span", { class: `swatch ${kind}` }), label));
  }

  /** Lines about a box. */
  counted(/** @type {Box} */ { tree, node, zoomed, all: [all] }) {
    const [{ self, total }] = tree.sides;
    /** @type {(Node | string)[]} */
    const shares = [`${percentText(total[node], all)} of all`];
    if (total[zoomed] !== all) {
      const above = nameElement(this.names.fitting(tree.function[zoomed], STEP_COLUMNS));
      shares.push(element("span", {}, `${percentText(total[node], total[zoomed])} of `, above));
    }
    const own = `self ${NUMBER.format(self[node])} (${percentText(self[node], all)})`;
    return [separated([element("strong", {}, sampleText(total[node])), ...shares, own])];
  }

  /** A box in words, for a screen reader. */
  describe(/** @type {CallTree} */ { function: functions, sides: [{ self, total }] }, /** @type {number} */ node) {
    const shares = `${percentText(total[node], total[0])}, self ${percentText(self[node], total[0])}`;
    const { name, kind } = this.functions;
    return [name[functions[node]], shares, KINDS[kind[functions[node]]]].filter(Boolean).join(", ");
  }

  /** Samples of all of the graph. */
  summed(/** @type {number[]} */ [count], /** @type {number[]} */ [all]) {
    return `${sampleText(count)}, ${percentText(count, all)} of all`;
  }

  /** Samples that match, of those of a subtree. */
  matched(/** @type {number[]} */ [count], /** @type {CallTree} */ tree, /** @type {number} */ zoomed) {
    return `${percentText(count, tree.sides[0].total[zoomed])} of samples`;
  }
}

function shareCell(count, of) {
  const share = element("span", { class: "share" }, percentText(count, of));
  return element("td", { class: "number" }, share, element("span", { class: "count" }, shortNumber(count)));
}
