// The function table: sorted by any column, filtered by the search. A row opens callers and callees.

import { createElement, createNameElement, NUMBER_FORMAT } from "./elements.js";
import { required } from "./required.js";

/** @import { SearchResult } from "./search.js" */
/** @import { Column, FunctionSamples, Presenter } from "./shares.js" */

/** The number of rows that are shown first, and that each "show more" adds. */
const ROWS_PER_PAGE = 200;

/** The width of a name column without text, and of a character. */
const SWATCH_PX = 30;
const CHARACTER_PX = 7.3;

export class FunctionTable {
  /**
   * @param {HTMLElement} table
   * @param {{presenter: Presenter, onSelectFunction: (functionIndex: number) => void,
   *   onCount: (text: string) => void}} options
   * @param {string} initialColumn the key of the column that sorts the table at first
   */
  constructor(table, options, initialColumn) {
    this.options = options;
    this.columns = [...options.presenter.columns, this.createNameColumn()];
    /** @type {Column} */
    this.sortedBy = required(this.columns.find(({ key }) => key === initialColumn));
    this.direction = this.sortedBy.initialDirection;
    this.rowsShown = ROWS_PER_PAGE;
    /** @type {FunctionSamples} */
    this.samples = { sides: [], totals: [] };
    /** @type {SearchResult | null} */
    this.search = null;
    /** @type {number | null} */
    this.selectedFunction = null;
    /** @type {Map<number, HTMLElement>} */
    this.rows = new Map();
    this.headings = this.columns.map((column) => this.createHeading(column));
    this.body = createElement("tbody");
    this.body.addEventListener("keydown", (event) => this.moveFocus(event));
    table.append(createElement("thead", {}, createElement("tr", {}, ...this.headings)), this.body);
    this.table = table;
    new ResizeObserver(() => this.resize()).observe(table);
  }

  /** @returns {Column} */
  createNameColumn() {
    const { name } = this.options.presenter.functions;
    const compare = () => (a, b) => (name[a] < name[b] ? -1 : 1);
    return {
      key: "name",
      label: "Function",
      initialDirection: "ascending",
      compare,
      cell: (_, functionIndex) => this.createNameCell(functionIndex),
    };
  }

  createHeading(/** @type {Column} */ column) {
    const button = createElement("button", { type: "button", onclick: () => this.sortBy(column) }, column.label);
    return createElement("th", { scope: "col", class: column.key }, button);
  }

  sortBy(/** @type {Column} */ column) {
    const opposite = this.direction === "ascending" ? "descending" : "ascending";
    this.direction = column === this.sortedBy ? opposite : column.initialDirection;
    this.sortedBy = column;
    this.draw();
  }

  show(/** @type {FunctionSamples} */ samples) {
    this.samples = samples;
    this.rowsShown = ROWS_PER_PAGE;
    this.draw();
  }

  setSearch(/** @type {SearchResult | null} */ result) {
    this.search = result;
    this.rowsShown = ROWS_PER_PAGE;
    this.draw();
  }

  setSelectedFunction(/** @type {number} */ functionIndex) {
    if (this.selectedFunction !== null) this.rows.get(this.selectedFunction)?.setAttribute("aria-current", "false");
    this.rows.get(functionIndex)?.setAttribute("aria-current", "true");
    this.selectedFunction = functionIndex;
  }

  /** Names depend on the width alone; the height of the table follows from its rows. */
  resize() {
    if (this.table.clientWidth !== this.width) this.draw();
  }

  draw() {
    this.width = this.table.clientWidth;
    const found = this.listFunctions();
    const shown = found.slice(0, this.rowsShown);
    this.rows = new Map(
      shown.map((functionIndex, index) => [functionIndex, this.createRow(functionIndex, index === 0)]),
    );
    this.body.replaceChildren(...this.rows.values());
    this.showCount(shown.length, found.length);
    this.headings.forEach((heading, index) => {
      const isSorted = this.columns[index] === this.sortedBy;
      heading.setAttribute("aria-sort", isSorted ? this.direction : "none");
    });
  }

  showCount(shown, found) {
    if (found > shown) this.body.append(this.createMoreRow());
    const part = found > shown ? `${NUMBER_FORMAT.format(shown)} of ` : "";
    this.options.onCount(`${part}${NUMBER_FORMAT.format(found)}${this.search ? " matching" : ""}`);
  }

  /** Lists the sampled functions that match the search, in order. */
  listFunctions() {
    const { count } = this.options.presenter.functions;
    const { sides } = this.samples;
    const found = [];
    for (let functionIndex = 0; functionIndex < count; functionIndex += 1) {
      const isSampled = sides.some(({ total }) => total[functionIndex] > 0);
      if (isSampled && (!this.search || this.search.matches[functionIndex])) found.push(functionIndex);
    }
    const compare = this.sortedBy.compare(this.samples);
    const byName = required(this.columns.at(-1)).compare(this.samples);
    found.sort((a, b) => compare(a, b) || byName(b, a));
    return this.direction === "ascending" ? found : found.reverse();
  }

  createRow(functionIndex, isFirst) {
    const attributes = {
      onclick: () => this.options.onSelectFunction(functionIndex),
      "aria-current": functionIndex === this.selectedFunction ? "true" : "false",
    };
    const row = createElement("tr", attributes, ...this.columns.map(({ cell }) => cell(this.samples, functionIndex)));
    required(row.querySelector("button")).tabIndex = isFirst ? 0 : -1;
    return row;
  }

  createNameCell(functionIndex) {
    const { presenter } = this.options;
    const name = presenter.functions.name[functionIndex];
    const short = createNameElement(presenter.names.shorten(functionIndex, this.getMaxNameLength()));
    const button = createElement("button", { type: "button", title: name, "aria-label": name }, short);
    return createElement("td", { class: "name" }, ...presenter.createNameMarks(functionIndex), button);
  }

  /** Returns the number of characters that fit into the name column. */
  getMaxNameLength() {
    return Math.floor((required(this.headings.at(-1)).clientWidth - SWATCH_PX) / CHARACTER_PX);
  }

  createMoreRow() {
    const more = () => {
      this.rowsShown += ROWS_PER_PAGE;
      this.draw();
    };
    const button = createElement("button", { type: "button", onclick: more }, "show more");
    return createElement("tr", {}, createElement("td", { colspan: this.columns.length, class: "more" }, button));
  }

  moveFocus(/** @type {KeyboardEvent} */ event) {
    const buttons = [...this.body.querySelectorAll("button")];
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)].focus();
    event.preventDefault();
  }
}
