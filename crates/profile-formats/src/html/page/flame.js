// Draws a call tree as a flame graph on a canvas, with zoom, scrolling and keyboard navigation.

import { createElement } from "./elements.js";
import { required } from "./required.js";
import { listAncestors, listChildren, TreeItems } from "./tree_items.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { ThemeColours } from "./colours.js" */
/** @import { SearchResult } from "./search.js" */
/** @import { Presenter } from "./shares.js" */

const ROW_PX = 18;

/** The number of rows above the zoomed box that stay visible. */
const VISIBLE_ROWS_ABOVE = 3;

/** Narrower boxes are not drawn, and neither are their descendants. */
const MIN_BOX_PX = 0.5;

/** Narrower boxes have no text. */
const MIN_TEXT_BOX_PX = 26;

const TEXT_INSET_PX = 4;

const FONT = "12px ui-monospace, 'SFMono-Regular', Menlo, Consolas, 'DejaVu Sans Mono', monospace";

/**
 * The place of a box on the canvas, in pixels.
 * @typedef {{left: number, top: number, width: number, height: number}} BoxPlace
 */

/**
 * @typedef {object} FlameEvents
 * @property {(node: number | null) => void} onPoint called with the box to show details of
 * @property {(node: number) => void} onZoom
 */

export class FlameView {
  /**
   * @param {HTMLElement} holder
   * @param {{label: string, colours: ThemeColours, presenter: Presenter} & FlameEvents} options
   */
  constructor(holder, options) {
    this.options = options;
    this.canvas = /** @type {HTMLCanvasElement} */ (createElement("canvas", { "aria-hidden": "true" }));
    this.spacer = createElement("div");
    this.items = new TreeItems((tree, node) => options.presenter.describeBox(tree, node));
    holder.append(this.canvas, this.spacer, this.items.holder);
    holder.className = "flame";
    holder.tabIndex = 0;
    holder.setAttribute("role", "tree");
    holder.setAttribute("aria-label", options.label);
    this.holder = holder;
    /** @type {CallTree | null} */
    this.tree = null;
    this.rootIsBelow = false;
    this.zoomed = 0;
    this.focused = 0;
    this.width = 0;
    this.height = 0;
    /** The width of a character, which each drawing sets. */
    this.characterPx = 0;
    /** @type {number | null} */
    this.hovered = null;
    /** @type {SearchResult | null} */
    this.search = null;
    this.listen();
  }

  listen() {
    const { holder } = this;
    holder.addEventListener("scroll", () => this.redraw());
    holder.addEventListener("pointermove", (event) => this.hover(this.findNodeAt(event)));
    holder.addEventListener("pointerleave", () => this.hover(null));
    holder.addEventListener("click", (event) => {
      const node = this.findNodeAt(event);
      if (node !== null) this.options.onZoom(node);
    });
    holder.addEventListener("keydown", (event) => this.moveFocus(event));
    holder.addEventListener("focus", () => this.focus(this.focused));
    holder.addEventListener("blur", () => this.redraw());
    new ResizeObserver(() => this.resize()).observe(holder);
  }

  /** The tree that is shown: nothing asks for it before. */
  get shownTree() {
    return required(this.tree);
  }

  show(/** @type {CallTree} */ tree, zoomed = 0) {
    this.tree = tree;
    this.hovered = null;
    this.zoomed = zoomed;
    this.resizeCanvas();
    this.zoom(zoomed);
  }

  zoom(/** @type {number} */ node) {
    this.zoomed = node;
    this.focused = node;
    this.scrollToSubtree(node);
    if (this.isFocused()) this.focus(node);
    this.redraw();
  }

  setRootBelow(/** @type {boolean} */ isBelow) {
    this.rootIsBelow = isBelow;
    if (this.tree) this.scrollToSubtree(this.zoomed);
    this.redraw();
  }

  setSearch(/** @type {SearchResult | null} */ result) {
    this.search = result;
    this.redraw();
  }

  isFocused() {
    return document.activeElement === this.holder;
  }

  /** Returns the box at the pointer, else the focused box. */
  getPointedNode() {
    return this.hovered ?? (this.isFocused() ? this.focused : null);
  }

  hover(/** @type {number | null} */ node) {
    if (node === this.hovered) return;
    this.hovered = node;
    this.holder.style.cursor = node === null ? "" : "pointer";
    this.options.onPoint(this.getPointedNode());
    this.redraw();
  }

  focus(/** @type {number} */ node) {
    if (!this.tree) return;
    this.focused = node;
    this.holder.setAttribute("aria-activedescendant", this.items.show(this.tree, node));
    this.scrollToRow(this.tree.depth[node]);
    this.options.onPoint(this.getPointedNode());
    this.redraw();
  }

  moveFocus(/** @type {KeyboardEvent} */ event) {
    if (!this.tree) return;
    const [outwards, inwards] = this.rootIsBelow ? ["ArrowDown", "ArrowUp"] : ["ArrowUp", "ArrowDown"];
    const next = {
      [outwards]: () => (this.focused === this.zoomed ? null : this.shownTree.parent[this.focused]),
      [inwards]: () => this.findWidestChild(this.focused),
      ArrowRight: () => this.findInRow(1),
      ArrowLeft: () => this.findInRow(-1),
    }[event.key];
    if (next && !event.altKey && !event.ctrlKey && !event.metaKey) {
      const node = next();
      if (node !== null) this.focus(node);
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      this.options.onZoom(this.focused);
      event.preventDefault();
    }
  }

  findWidestChild(/** @type {number} */ node) {
    const { shownTree: tree } = this;
    let widest = null;
    for (const child of listChildren(tree, node)) {
      if (tree.weight[child] > (widest === null ? 0 : tree.weight[widest])) widest = child;
    }
    return widest;
  }

  /** Finds the next visible box of the row in a direction. */
  findInRow(/** @type {1 | -1} */ step) {
    const { shownTree: tree, zoomed, focused } = this;
    for (let node = focused + step; node > zoomed && node < tree.end[zoomed]; node += step) {
      if (tree.depth[node] === tree.depth[focused] && this.getWidthPx(node) >= MIN_BOX_PX) return node;
    }
    return null;
  }

  /** Focuses the next box in a direction that matches the search, if any. */
  focusMatch(/** @type {1 | -1} */ step) {
    const { shownTree: tree, zoomed, search: result } = this;
    const size = tree.end[zoomed] - zoomed;
    for (let steps = 1; result && steps <= size; steps += 1) {
      const node = zoomed + ((((this.focused - zoomed + step * steps) % size) + size) % size);
      if (result.matches[tree.function[node]] && tree.weight[node] > 0) {
        this.holder.focus();
        this.focus(node);
        return;
      }
    }
  }

  getLeftPx(node) {
    const { shownTree: tree, zoomed } = this;
    return ((tree.start[node] - tree.start[zoomed]) / tree.weight[zoomed]) * this.width;
  }

  getWidthPx(node) {
    const { shownTree: tree, zoomed } = this;
    return (tree.weight[node] / tree.weight[zoomed]) * this.width;
  }

  /** Returns the top of a row in the scrolled content. */
  getRowTopPx(depth) {
    return this.rootIsBelow ? this.getContentPx() - (depth + 1) * ROW_PX : depth * ROW_PX;
  }

  getContentPx() {
    return Math.max((this.tree?.levels ?? 1) * ROW_PX, this.height);
  }

  /** @returns {number | null} */
  findNodeAt(/** @type {MouseEvent} */ event) {
    const { tree, zoomed } = this;
    if (!tree || tree.weight[0] === 0) return null;
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top + this.holder.scrollTop;
    const depth = Math.floor((this.rootIsBelow ? this.getContentPx() - y : y) / ROW_PX);
    if (depth < tree.depth[zoomed]) return listAncestors(tree, zoomed)[depth] ?? null;
    const weight = tree.start[zoomed] + ((event.clientX - box.left) / this.width) * tree.weight[zoomed];
    let node = zoomed;
    while (tree.depth[node] < depth) {
      let below = null;
      for (const child of listChildren(tree, node)) {
        if (weight >= tree.start[child] && weight < tree.start[child] + tree.weight[child]) below = child;
      }
      if (below === null) return null;
      node = below;
    }
    return node;
  }

  /** Makes as much of a subtree visible as possible, with some rows above it. */
  scrollToSubtree(/** @type {number} */ node) {
    const { shownTree: tree } = this;
    const deepest = tree.depth.subarray(node, tree.end[node]).reduce((one, other) => Math.max(one, other));
    this.scrollToRow(deepest);
    this.scrollToRow(Math.max(tree.depth[node] - VISIBLE_ROWS_ABOVE, 0));
  }

  scrollToRow(/** @type {number} */ depth) {
    const { holder } = this;
    const top = this.getRowTopPx(depth);
    if (top < holder.scrollTop) holder.scrollTop = top;
    else if (top + ROW_PX > holder.scrollTop + this.height) holder.scrollTop = top + ROW_PX - this.height;
  }

  resize() {
    const { clientWidth, clientHeight } = this.holder;
    if (clientWidth === this.width && clientHeight === this.height) return;
    this.resizeCanvas();
    this.draw();
  }

  /** Adapts the canvas to the size of its holder, and the scrolled height to the number of rows. */
  resizeCanvas() {
    const { holder, canvas } = this;
    const wasHidden = this.height === 0;
    const belowPx = this.getContentPx() - this.height - holder.scrollTop;
    this.width = holder.clientWidth;
    this.height = holder.clientHeight;
    canvas.style.height = `${this.height}px`;
    canvas.width = Math.round(this.width * devicePixelRatio);
    canvas.height = Math.round(this.height * devicePixelRatio);
    this.spacer.style.height = `${this.getContentPx() - this.height}px`;
    if (wasHidden && this.tree) this.scrollToSubtree(this.zoomed);
    else if (this.rootIsBelow) holder.scrollTop = this.getContentPx() - this.height - belowPx;
  }

  redraw() {
    this.pendingFrame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.pendingFrame = undefined;
    const { tree, zoomed } = this;
    const context = this.canvas.getContext("2d");
    if (!tree || !context || !this.width) return;
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = "middle";
    this.characterPx = context.measureText("m").width;
    if (tree.weight[0] === 0) return;
    for (const node of listAncestors(tree, zoomed)) this.drawBox(context, node, 0, this.width, true);
    for (let node = zoomed; node < tree.end[zoomed]; ) {
      const width = this.getWidthPx(node);
      const isSkipped = width < MIN_BOX_PX || this.isOutOfView(tree.depth[node]);
      if (!isSkipped) this.drawBox(context, node, this.getLeftPx(node), width, false);
      node = isSkipped ? tree.end[node] : node + 1;
    }
    this.drawFocus(context);
  }

  /** Whether this row and all rows farther from the root are out of view. */
  isOutOfView(depth) {
    const top = this.getRowTopPx(depth) - this.holder.scrollTop;
    return this.rootIsBelow ? top + ROW_PX < 0 : top > this.height;
  }

  drawBox(context, node, left, width, isAncestor) {
    const { shownTree: tree } = this;
    const top = this.getRowTopPx(tree.depth[node]) - this.holder.scrollTop;
    if (top > this.height || top + ROW_PX < 0) return;
    const { colours, presenter } = this.options;
    const functionIndex = tree.function[node];
    const isMatch = this.search !== null && this.search.matches[functionIndex] === 1;
    const isFaded = isAncestor || (this.search !== null && !isMatch);
    const gap = width > 3 ? 1 : 0;
    presenter.fillBox(context, tree, node, isFaded, { left, top, width: width - gap, height: ROW_PX - 1 });
    if (node === this.hovered || (isMatch && width > 4)) {
      context.strokeStyle = colours.outline;
      context.lineWidth = node === this.hovered ? 2 : 1;
      context.strokeRect(left + 0.5, top + 0.5, width - gap - 1, ROW_PX - 2);
    }
    if (width < MIN_TEXT_BOX_PX) return;
    const textPx = width - 2 * TEXT_INSET_PX;
    context.fillStyle = isFaded ? colours.fadedText : colours.text;
    const text = presenter.getBoxText(tree, node, Math.floor(textPx / this.characterPx));
    context.fillText(text, left + TEXT_INSET_PX, top + ROW_PX / 2, textPx);
  }

  drawFocus(context) {
    if (!this.holder.matches(":focus-visible")) return;
    const { shownTree: tree, focused } = this;
    context.strokeStyle = this.options.colours.focus;
    context.lineWidth = 2;
    const top = this.getRowTopPx(tree.depth[focused]) - this.holder.scrollTop;
    context.strokeRect(this.getLeftPx(focused) + 1, top + 1, Math.max(this.getWidthPx(focused) - 3, 2), ROW_PX - 3);
  }
}
