// What the samples of two profiles are told as: shares before and after, boxes in the colours of their change.

/** What a sample of each profile weighs: the same share of either is as wide. */
const WIDTHS = {
  both: ([before, after]) => [0.5 / Math.max(before, 1), 0.5 / Math.max(after, 1)],
  before: () => [1, 0],
  after: () => [0, 1],
};

class Comparison {
  /**
   * @param {Functions} functions
   * @param {FittingNames} names
   * @param {number[]} all samples before and after: every share is one of them, whatever the graph is zoomed to
   */
  constructor(functions, names, all) {
    this.functions = functions;
    this.names = names;
    this.all = all;
    this.widths = "both";
    this.colours = new ChangeColours();
    const change = (key) => ({ sides }, which) => this.change(sides, key, which);
    const sizes = (key, hot) => hot.sides[0][key].map((_, which) => Math.abs(change(key)(hot, which).points));
    const byPoints = (key, other) => (hot) => compareBy(sizes(key, hot), sizes(other, hot));
    const byShare = (side) => (hot) => compareBy(hot.sides[side].self);
    const share = (key) => (hot, which) => percentCell(change("self")(hot, which)[key]);
    const points = (key) => (hot, which) => changeCell(change(key)(hot, which));
    /** @type {Column[]} */
    this.columns = [
      { key: "before", label: "Self before", first: "descending", compare: byShare(0), cell: share("before") },
      { key: "after", label: "Self after", first: "descending", compare: byShare(1), cell: share("after") },
      { key: "change", label: "Self change", first: "descending", compare: byPoints("self", "total"), cell: points("self") },
      { key: "change total", label: "Total change", first: "descending", compare: byPoints("total", "self"), cell: points("total") },
    ];
  }

  readStyle(background) {
    this.colours.readStyle(background);
  }

  factors() {
    return WIDTHS[this.widths](this.all);
  }

  shareOf() {
    return this.all;
  }

  /** Of a node's or a function's samples. */
  change(/** @type {Counts[]} */ sides, /** @type {"self" | "total"} */ key, /** @type {number} */ at) {
    return changeOf([sides[0][key][at], sides[1][key][at]], this.all);
  }

  colour(/** @type {CallTree} */ tree, /** @type {number} */ node, isFaded) {
    return this.colours.box(this.change(tree.sides, "total", node), isFaded);
  }

  fitting(/** @type {CallTree} */ tree, /** @type {number} */ node, columns) {
    const direction = directionOf(this.change(tree.sides, "total", node));
    if (direction === "noise") return this.names.fitting(tree.function[node], columns);
    return `${MARKS[direction]} ${this.names.fitting(tree.function[node], columns - 2)}`;
  }

  marks() {
    return [];
  }

  legend() {
    const labels = { more: "more after", less: "less after", noise: DIRECTIONS.noise };
    const swatch = (direction) => element("span", { class: `swatch ${direction}` });
    const item = ([direction, label]) => element("li", {}, swatch(direction), `${MARKS[direction]} ${label}`);
    const depth = element("li", {}, "stronger: a larger part of the box");
    return [...Object.entries(labels).map(item), depth];
  }

  counted(/** @type {Box} */ { tree: { sides }, node }) {
    const counts = (key) => sides.map((side) => side[key][node]);
    const total = this.counts("in total", counts("total"));
    return [total, counts("self").some((count) => count > 0) ? this.counts("itself", counts("self")) : ["itself never"]];
  }

  /** Samples before and after, in one line. */
  counts(/** @type {string} */ what, /** @type {number[]} */ counts) {
    const change = changeOf(counts, this.all);
    const direction = directionOf(change);
    const side = (name, number, share) => `${name} ${share.toFixed(2)} % (${NUMBER.format(counts[number])})`;
    return separated([
      `${what}: ${side("before", 0, change.before)}`,
      side("after", 1, change.after),
      element("strong", { class: direction }, `${changeText(change)} points`),
      [DIRECTIONS[direction], onlySide(counts)].filter(Boolean).join(", "),
    ]);
  }

  describe(/** @type {CallTree} */ { function: functions, sides }, /** @type {number} */ node) {
    const { name, kind } = this.functions;
    const which = functions[node];
    return [name[which], changeSentence(this.change(sides, "total", node)), KINDS[kind[which]]].filter(Boolean).join(", ");
  }

  summed(/** @type {number[]} */ counts) {
    return changeSentence(changeOf(counts, this.all));
  }

  matched(/** @type {number[]} */ counts) {
    return this.summed(counts);
  }
}

/** Compares functions by the first of these columns in which they differ. */
function compareBy(/** @type {Float64Array[]} */ ...columns) {
  return (a, b) => {
    const column = columns.find((numbers) => numbers[a] !== numbers[b]) ?? columns[0];
    return column[a] - column[b];
  };
}

function changeSentence(/** @type {Change} */ change) {
  const shares = `before ${change.before.toFixed(2)} %, after ${change.after.toFixed(2)} %`;
  return `${shares}, ${changeText(change)} points: ${DIRECTIONS[directionOf(change)]}`;
}

function percentCell(/** @type {number} */ percent) {
  return element("td", { class: "number" }, element("span", { class: "share" }, `${percent.toFixed(2)} %`));
}

function changeCell(/** @type {Change} */ change) {
  const direction = directionOf(change);
  const noise = element("span", { class: "count" }, `±${change.noise.toFixed(2)}`);
  const points = element("span", { class: `share ${direction}` }, `${MARKS[direction]} ${pointsText(change.points)}`);
  return element("td", { class: "number", title: DIRECTIONS[direction] }, points, noise);
}
