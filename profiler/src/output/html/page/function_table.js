// The table of hot functions: sorted by any column, narrowed by the search; a row leads to callers and callees.

/** More rows are shown when they are asked for. */
const ROWS_AT_ONCE = 200;

/** The space that is no name's, and what a character of one takes. */
const SWATCH_PX = 30;
const CHARACTER_PX = 7.3;

const COLUMNS = [
  { key: "self", label: "Self", first: "descending" },
  { key: "total", label: "Total", first: "descending" },
  { key: "name", label: "Function", first: "ascending" },
];

class FunctionTable {
  /**
   * @param {HTMLElement} table
   * @param {{functions: Functions, names: FittingNames, onPick: (which: number) => void, onShown: (text: string) => void}} setting
   */
  constructor(table, setting) {
    this.setting = setting;
    this.sortedBy = COLUMNS[0];
    this.direction = COLUMNS[0].first;
    this.rowsShown = ROWS_AT_ONCE;
    this.numbers = { self: new Float64Array(0), total: new Float64Array(0), of: 0 };
    /** @type {Search | null} */
    this.search = null;
    /** @type {number | null} */
    this.picked = null;
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    this.headings = COLUMNS.map((column) => this.heading(column));
    this.body = element("tbody");
    this.body.addEventListener("keydown", (event) => this.walk(event));
    table.append(element("thead", {}, element("tr", {}, ...this.headings)), this.body);
    new ResizeObserver(() => this.draw()).observe(table);
  }

  heading(column) {
    const button = element("button", { type: "button", onclick: () => this.sortBy(column) }, column.label);
    return element("th", { scope: "col", class: column.key }, button);
  }

  sortBy(column) {
    const turned = this.direction === "ascending" ? "descending" : "ascending";
    this.direction = column === this.sortedBy ? turned : column.first;
    this.sortedBy = column;
    this.draw();
  }

  /** Shows these numbers, as shares of `of` samples. */
  show({ self, total }, of) {
    this.numbers = { self, total, of };
    this.rowsShown = ROWS_AT_ONCE;
    this.draw();
  }

  setSearch(/** @type {Search | null} */ found) {
    this.search = found;
    this.rowsShown = ROWS_AT_ONCE;
    this.draw();
  }

  setPicked(/** @type {number} */ which) {
    this.rows.get(this.picked)?.setAttribute("aria-current", "false");
    this.rows.get(which)?.setAttribute("aria-current", "true");
    this.picked = which;
  }

  draw() {
    const found = this.found();
    const shown = found.slice(0, this.rowsShown);
    this.rows = new Map(shown.map((which, index) => [which, this.row(which, index === 0)]));
    this.body.replaceChildren(...this.rows.values());
    this.showCount(shown.length, found.length);
    this.headings.forEach((heading, index) => {
      const isSorted = COLUMNS[index] === this.sortedBy;
      heading.setAttribute("aria-sort", isSorted ? this.direction : "none");
    });
  }

  showCount(shown, found) {
    if (found > shown) this.body.append(this.moreRow());
    const part = found > shown ? `${NUMBER.format(shown)} of ` : "";
    this.setting.onShown(`${part}${NUMBER.format(found)}${this.search ? " matching" : ""}`);
  }

  /** The functions that were sampled and match, in order. */
  found() {
    const { functions } = this.setting;
    const { self, total } = this.numbers;
    const found = [];
    for (let which = 0; which < functions.count; which += 1) {
      if (total[which] > 0 && (!this.search || this.search.matches[which])) found.push(which);
    }
    const byName = (a, b) => (functions.name[a] < functions.name[b] ? -1 : 1);
    const ascending = {
      self: (a, b) => self[a] - self[b] || total[a] - total[b] || byName(b, a),
      total: (a, b) => total[a] - total[b] || self[a] - self[b] || byName(b, a),
      name: byName,
    }[this.sortedBy.key];
    found.sort(ascending);
    return this.direction === "ascending" ? found : found.reverse();
  }

  row(which, isFirst) {
    const { functions, names, onPick } = this.setting;
    const { self, total, of } = this.numbers;
    const pick = () => onPick(which);
    const name = functions.name[which];
    const labels = { title: name, "aria-label": name };
    const short = nameElement(names.fitting(which, this.nameColumns()));
    const button = element("button", { type: "button", tabindex: isFirst ? 0 : -1, ...labels }, short);
    const swatch = element("span", { class: `swatch ${functions.kind[which]}`, title: KINDS[functions.kind[which]] });
    const attributes = { onclick: pick, "aria-current": which === this.picked ? "true" : "false" };
    return element(
      "tr",
      attributes,
      numberCell(self[which], of),
      numberCell(total[which], of),
      element("td", { class: "name" }, swatch, button),
    );
  }

  /** How many characters of a name have room. */
  nameColumns() {
    return Math.floor((this.headings.at(-1).clientWidth - SWATCH_PX) / CHARACTER_PX);
  }

  moreRow() {
    const more = () => {
      this.rowsShown += ROWS_AT_ONCE;
      this.draw();
    };
    const button = element("button", { type: "button", onclick: more }, "show more");
    return element("tr", {}, element("td", { colspan: COLUMNS.length, class: "more" }, button));
  }

  walk(/** @type {KeyboardEvent} */ event) {
    const buttons = [...this.body.querySelectorAll("button")];
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)].focus();
    event.preventDefault();
  }
}

function numberCell(count, of) {
  const share = element("span", { class: "share" }, percentText(count, of));
  return element("td", { class: "number" }, share, element("span", { class: "count" }, shortNumber(count)));
}
