// A call tree as boxes on a canvas: drawn where they are seen, zoomed, walked with the keyboard.

const ROW_PX = 18;

/** So many rows above the zoomed box stay in sight. */
const ROWS_ABOVE = 3;

/** Narrower boxes are not drawn; what is below them is narrower still. */
const NARROWEST_PX = 0.5;

/** Narrower boxes have no room for text. */
const TEXT_FROM_PX = 26;

const TEXT_INSET_PX = 4;

const FONT = "12px ui-monospace, 'SFMono-Regular', Menlo, Consolas, 'DejaVu Sans Mono', monospace";

/**
 * @typedef {object} FlameEvents
 * @property {(node: number | null) => void} onPoint the box that details are wanted of
 * @property {(node: number) => void} onZoom
 */

class FlameView {
  /**
   * @param {HTMLElement} holder
   * @param {{label: string, colours: Colours, reading: Reading} & FlameEvents} setting
   */
  constructor(holder, setting) {
    this.setting = setting;
    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { "aria-hidden": "true" }));
    this.spacer = element("div");
    this.items = new TreeItems((tree, node) => setting.reading.describe(tree, node));
    holder.append(this.canvas, this.spacer, this.items.holder);
    holder.className = "flame";
    holder.tabIndex = 0;
    holder.setAttribute("role", "tree");
    holder.setAttribute("aria-label", setting.label);
    this.holder = holder;
    /** @type {CallTree | null} */
    this.tree = null;
    this.rootIsBelow = false;
    this.zoomed = 0;
    this.focused = 0;
    this.width = 0;
    this.height = 0;
    /** @type {number | null} */
    this.hovered = null;
    /** @type {Search | null} */
    this.search = null;
    this.listen();
  }

  listen() {
    const { holder } = this;
    holder.addEventListener("scroll", () => this.redraw());
    holder.addEventListener("pointermove", (event) => this.hover(this.nodeAt(event)));
    holder.addEventListener("pointerleave", () => this.hover(null));
    holder.addEventListener("click", (event) => {
      const node = this.nodeAt(event);
      if (node !== null) this.setting.onZoom(node);
    });
    holder.addEventListener("keydown", (event) => this.walk(event));
    holder.addEventListener("focus", () => this.focus(this.focused));
    holder.addEventListener("blur", () => this.redraw());
    new ResizeObserver(() => this.resize()).observe(holder);
  }

  show(/** @type {CallTree} */ tree, zoomed = 0) {
    this.tree = tree;
    this.hovered = null;
    this.zoomed = zoomed;
    this.fit();
    this.zoom(zoomed);
  }

  zoom(/** @type {number} */ node) {
    this.zoomed = node;
    this.focused = node;
    this.scrollToSubtree(node);
    if (this.hasKeyboard()) this.focus(node);
    this.redraw();
  }

  setRootBelow(/** @type {boolean} */ isBelow) {
    this.rootIsBelow = isBelow;
    if (this.tree) this.scrollToSubtree(this.zoomed);
    this.redraw();
  }

  setSearch(/** @type {Search | null} */ found) {
    this.search = found;
    this.redraw();
  }

  hasKeyboard() {
    return document.activeElement === this.holder;
  }

  /** The box that details are shown of. */
  pointed() {
    return this.hovered ?? (this.hasKeyboard() ? this.focused : null);
  }

  hover(/** @type {number | null} */ node) {
    if (node === this.hovered) return;
    this.hovered = node;
    this.holder.style.cursor = node === null ? "" : "pointer";
    this.setting.onPoint(this.pointed());
    this.redraw();
  }

  focus(/** @type {number} */ node) {
    if (!this.tree) return;
    this.focused = node;
    this.holder.setAttribute("aria-activedescendant", this.items.show(this.tree, node));
    this.scrollToRow(this.tree.depth[node]);
    this.setting.onPoint(this.pointed());
    this.redraw();
  }

  walk(/** @type {KeyboardEvent} */ event) {
    if (!this.tree) return;
    const [outwards, inwards] = this.rootIsBelow ? ["ArrowDown", "ArrowUp"] : ["ArrowUp", "ArrowDown"];
    const next = {
      [outwards]: () => (this.focused === this.zoomed ? null : this.tree.parent[this.focused]),
      [inwards]: () => this.widestChild(this.focused),
      ArrowRight: () => this.inRow(1),
      ArrowLeft: () => this.inRow(-1),
    }[event.key];
    if (next && !event.altKey && !event.ctrlKey && !event.metaKey) {
      const node = next();
      if (node !== null) this.focus(node);
      event.preventDefault();
    } else if (event.key === "Enter" || event.key === " ") {
      this.setting.onZoom(this.focused);
      event.preventDefault();
    }
  }

  widestChild(/** @type {number} */ node) {
    let widest = null;
    for (const child of childrenOf(this.tree, node)) {
      if (this.tree.weight[child] > (widest === null ? 0 : this.tree.weight[widest])) widest = child;
    }
    return widest;
  }

  /** The next box of the row that can be seen, in a direction. */
  inRow(/** @type {1 | -1} */ step) {
    const { tree, zoomed, focused } = this;
    for (let node = focused + step; node > zoomed && node < tree.end[zoomed]; node += step) {
      if (tree.depth[node] === tree.depth[focused] && this.widthPx(node) >= NARROWEST_PX) return node;
    }
    return null;
  }

  /** The next box that matches the search, in a direction, or the same one. */
  focusMatch(/** @type {1 | -1} */ step) {
    const { tree, zoomed, search: found } = this;
    const size = tree.end[zoomed] - zoomed;
    for (let steps = 1; found && steps <= size; steps += 1) {
      const node = zoomed + ((((this.focused - zoomed + step * steps) % size) + size) % size);
      if (found.matches[tree.function[node]] && tree.weight[node] > 0) {
        this.holder.focus();
        this.focus(node);
        return;
      }
    }
  }

  leftPx(node) {
    const { tree, zoomed } = this;
    return ((tree.start[node] - tree.start[zoomed]) / tree.weight[zoomed]) * this.width;
  }

  widthPx(node) {
    return (this.tree.weight[node] / this.tree.weight[this.zoomed]) * this.width;
  }

  /** The top of a row in all that can be scrolled over. */
  rowPx(depth) {
    return this.rootIsBelow ? this.contentPx() - (depth + 1) * ROW_PX : depth * ROW_PX;
  }

  contentPx() {
    return Math.max((this.tree?.levels ?? 1) * ROW_PX, this.height);
  }

  /** @returns {number | null} */
  nodeAt(/** @type {MouseEvent} */ event) {
    const { tree, zoomed } = this;
    if (!tree || tree.weight[0] === 0) return null;
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top + this.holder.scrollTop;
    const depth = Math.floor((this.rootIsBelow ? this.contentPx() - y : y) / ROW_PX);
    if (depth < tree.depth[zoomed]) return pathTo(tree, zoomed)[depth] ?? null;
    const place = tree.start[zoomed] + ((event.clientX - box.left) / this.width) * tree.weight[zoomed];
    let node = zoomed;
    while (tree.depth[node] < depth) {
      let below = null;
      for (const child of childrenOf(tree, node)) {
        if (place >= tree.start[child] && place < tree.start[child] + tree.weight[child]) below = child;
      }
      if (below === null) return null;
      node = below;
    }
    return node;
  }

  /** As much of a subtree as has room, with some of what is above it. */
  scrollToSubtree(/** @type {number} */ node) {
    const { tree } = this;
    const deepest = tree.depth.subarray(node, tree.end[node]).reduce((one, other) => Math.max(one, other));
    this.scrollToRow(deepest);
    this.scrollToRow(Math.max(tree.depth[node] - ROWS_ABOVE, 0));
  }

  scrollToRow(/** @type {number} */ depth) {
    const { holder } = this;
    const top = this.rowPx(depth);
    if (top < holder.scrollTop) holder.scrollTop = top;
    else if (top + ROW_PX > holder.scrollTop + this.height) holder.scrollTop = top + ROW_PX - this.height;
  }

  resize() {
    const { clientWidth, clientHeight } = this.holder;
    if (clientWidth === this.width && clientHeight === this.height) return;
    this.fit();
    this.draw();
  }

  /** Takes the room that there is, for as many rows as there are. */
  fit() {
    const { holder, canvas } = this;
    const wasHidden = this.height === 0;
    const belowPx = this.contentPx() - this.height - holder.scrollTop;
    this.width = holder.clientWidth;
    this.height = holder.clientHeight;
    canvas.style.height = `${this.height}px`;
    canvas.width = Math.round(this.width * devicePixelRatio);
    canvas.height = Math.round(this.height * devicePixelRatio);
    this.spacer.style.height = `${this.contentPx() - this.height}px`;
    if (wasHidden && this.tree) this.scrollToSubtree(this.zoomed);
    else if (this.rootIsBelow) holder.scrollTop = this.contentPx() - this.height - belowPx;
  }

  redraw() {
    this.waiting ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.waiting = undefined;
    const { tree, zoomed } = this;
    const context = this.canvas.getContext("2d");
    if (!tree || !context || !this.width) return;
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = "middle";
    this.columnPx = context.measureText("m").width;
    if (tree.weight[0] === 0) return;
    for (const node of pathTo(tree, zoomed)) this.drawBox(context, node, 0, this.width, true);
    for (let node = zoomed; node < tree.end[zoomed]; ) {
      const width = this.widthPx(node);
      const isBeyond = width < NARROWEST_PX || this.isBeyond(tree.depth[node]);
      if (!isBeyond) this.drawBox(context, node, this.leftPx(node), width, false);
      node = isBeyond ? tree.end[node] : node + 1;
    }
    this.drawFocus(context);
  }

  /** Whether the row and all further from the root are out of sight. */
  isBeyond(depth) {
    const top = this.rowPx(depth) - this.holder.scrollTop;
    return this.rootIsBelow ? top + ROW_PX < 0 : top > this.height;
  }

  drawBox(context, node, left, width, isAbove) {
    const top = this.rowPx(this.tree.depth[node]) - this.holder.scrollTop;
    if (top > this.height || top + ROW_PX < 0) return;
    const { colours, reading } = this.setting;
    const which = this.tree.function[node];
    const isMatch = this.search !== null && this.search.matches[which] === 1;
    const isFaded = isAbove || (this.search !== null && !isMatch);
    const gap = width > 3 ? 1 : 0;
    context.fillStyle = reading.colour(this.tree, node, isFaded);
    context.fillRect(left, top, width - gap, ROW_PX - 1);
    if (node === this.hovered || (isMatch && width > 4)) {
      context.strokeStyle = colours.outline;
      context.lineWidth = node === this.hovered ? 2 : 1;
      context.strokeRect(left + 0.5, top + 0.5, width - gap - 1, ROW_PX - 2);
    }
    if (width < TEXT_FROM_PX) return;
    const room = width - 2 * TEXT_INSET_PX;
    context.fillStyle = isFaded ? colours.fadedText : colours.text;
    const text = reading.fitting(this.tree, node, Math.floor(room / this.columnPx));
    context.fillText(text, left + TEXT_INSET_PX, top + ROW_PX / 2, room);
  }

  drawFocus(context) {
    if (!this.holder.matches(":focus-visible")) return;
    const { tree, focused } = this;
    context.strokeStyle = this.setting.colours.focus;
    context.lineWidth = 2;
    const top = this.rowPx(tree.depth[focused]) - this.holder.scrollTop;
    context.strokeRect(this.leftPx(focused) + 1, top + 1, Math.max(this.widthPx(focused) - 3, 2), ROW_PX - 3);
  }
}
