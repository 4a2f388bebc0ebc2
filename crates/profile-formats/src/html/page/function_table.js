// The table of hot functions: sorted by any column, narrowed by the search; a row leads to callers and callees.

/** More rows are shown when they are asked for. */
const ROWS_AT_ONCE = 200;

/** The space that is no name's, and what a character of one takes. */
const SWATCH_PX = 30;
const CHARACTER_PX = 7.3;

class FunctionTable {
  /**
   * @param {HTMLElement} table
   * @param {{reading: Reading, onPick: (which: number) => void, onShown: (text: string) => void}} setting
   * @param {string} first the column that it is sorted by at first
   */
  constructor(table, setting, first) {
    this.setting = setting;
    this.columns = [...setting.reading.columns, this.nameColumn()];
    this.sortedBy = this.columns.find(({ key }) => key === first);
    this.direction = this.sortedBy.first;
    this.rowsShown = ROWS_AT_ONCE;
    /** @type {Hot} */
    this.hot = { sides: [], of: [] };
    /** @type {Search | null} */
    this.search = null;
    /** @type {number | null} */
    this.picked = null;
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    this.headings = this.columns.map((column) => this.heading(column));
    this.body = element("tbody");
    this.body.addEventListener("keydown", (event) => this.walk(event));
    table.append(element("thead", {}, element("tr", {}, ...this.headings)), this.body);
    this.table = table;
    new ResizeObserver(() => this.resize()).observe(table);
  }

  /** @returns {Column} */
  nameColumn() {
    const { name } = this.setting.reading.functions;
    const compare = () => (a, b) => (name[a] < name[b] ? -1 : 1);
    return { key: "name", label: "Function", first: "ascending", compare, cell: (_, which) => this.nameCell(which) };
  }

  heading(/** @type {Column} */ column) {
    const button = element("button", { type: "button", onclick: () => this.sortBy(column) }, column.label);
    return element("th", { scope: "col", class: column.key }, button);
  }

  sortBy(/** @type {Column} */ column) {
    const turned = this.direction === "ascending" ? "descending" : "ascending";
    this.direction = column === this.sortedBy ? turned : column.first;
    this.sortedBy = column;
    this.draw();
  }

  show(/** @type {Hot} */ hot) {
    this.hot = hot;
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

  /** Names get as much room as there is; the height of the table is that of its rows. */
  resize() {
    if (this.table.clientWidth !== this.width) this.draw();
  }

  draw() {
    this.width = this.table.clientWidth;
    const found = this.found();
    const shown = found.slice(0, this.rowsShown);
    this.rows = new Map(shown.map((which, index) => [which, this.row(which, index === 0)]));
    this.body.replaceChildren(...this.rows.values());
    this.showCount(shown.length, found.length);
    this.headings.forEach((heading, index) => {
      const isSorted = this.columns[index] === this.sortedBy;
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
    const { count } = this.setting.reading.functions;
    const { sides } = this.hot;
    const found = [];
    for (let which = 0; which < count; which += 1) {
      const isThere = sides.some(({ total }) => total[which] > 0);
      if (isThere && (!this.search || this.search.matches[which])) found.push(which);
    }
    const compare = this.sortedBy.compare(this.hot);
    const byName = this.columns.at(-1).compare(this.hot);
    found.sort((a, b) => compare(a, b) || byName(b, a));
    return this.direction === "ascending" ? found : found.reverse();
  }

  row(which, isFirst) {
    const attributes = { onclick: () => this.setting.onPick(which), "aria-current": which === this.picked ? "true" : "false" };
    const row = element("tr", attributes, ...this.columns.map(({ cell }) => cell(this.hot, which)));
    row.querySelector("button").tabIndex = isFirst ? 0 : -1;
    return row;
  }

  nameCell(which) {
    const { reading } = this.setting;
    const name = reading.functions.name[which];
    const short = nameElement(reading.names.fitting(which, this.nameColumns()));
    const button = element("button", { type: "button", title: name, "aria-label": name }, short);
    return element("td", { class: "name" }, ...reading.marks(which), button);
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
    return element("tr", {}, element("td", { colspan: this.columns.length, class: "more" }, button));
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
