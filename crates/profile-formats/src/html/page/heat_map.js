// The heat map of samples over time. Each column shows consecutive spans from top to bottom; ranges can be selected.

/** The possible numbers of spans per column. The first that needs at most `MAX_COLUMNS` is used. */
const SPANS_PER_COLUMN = [5, 10, 25, 50];
const MAX_COLUMNS = 300;

const HEAT_HEIGHT_PX = 70;
const AXIS_PX = 16;
const MIN_LABEL_PX = 60;
const AXIS_STEPS_SECONDS = [0.1, 1, 10, 100, 1e3, 1e4, 1e5].flatMap((unit) => [unit, 2 * unit, 5 * unit]);

class HeatMap {
  /**
   * @param {HTMLElement} holder
   * @param {{timeline: Timeline, colours: ThemeColours, onSelect: (from: number, to: number) => void,
   *   onReset: () => void, onPoint: (text: string) => void}} options
   */
  constructor(holder, options) {
    this.options = options;
    this.holder = holder;
    this.canvas = /** @type {HTMLCanvasElement} */ (createElement("canvas", { "aria-hidden": "true" }));
    holder.append(this.canvas);
    const { spans } = options.timeline;
    this.spans = spans;
    this.rows = SPANS_PER_COLUMN.find((rows) => spans / rows <= MAX_COLUMNS) ?? SPANS_PER_COLUMN.at(-1);
    this.columns = Math.ceil(spans / this.rows);
    /** @type {Float64Array} */
    this.counts = new Float64Array(spans);
    /** @type {number | null} the state whose colour is shown */
    this.state = null;
    this.selected = { from: 0, to: spans - 1 };
    this.cursor = 0;
    this.anchor = 0;
    this.dragFrom = -1;
    this.listen();
  }

  listen() {
    const { holder, options } = this;
    holder.addEventListener("pointerdown", (event) => {
      holder.setPointerCapture(event.pointerId);
      this.dragFrom = this.findSpanAt(event);
      this.markRange(this.dragFrom, this.dragFrom);
    });
    holder.addEventListener("pointermove", (event) => {
      const span = this.findSpanAt(event);
      options.onPoint(this.describeSpan(span));
      if (this.dragFrom >= 0) this.markRange(this.dragFrom, span);
    });
    holder.addEventListener("pointerleave", () => options.onPoint(""));
    holder.addEventListener("pointerup", (event) => {
      const span = this.findSpanAt(event);
      if (this.dragFrom === span) this.selectColumn(span);
      else if (this.dragFrom >= 0) this.selectRange(this.dragFrom, span);
      this.dragFrom = -1;
    });
    holder.addEventListener("keydown", (event) => this.moveCursor(event));
    holder.addEventListener("focus", () => this.draw());
    holder.addEventListener("blur", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  /** Sets the timeline of another event, which has the same spans. */
  setTimeline(/** @type {Timeline} */ timeline) {
    this.options.timeline = timeline;
  }

  /** Shows the values of each span, of one state or of several. */
  show(/** @type {Float64Array} */ counts, /** @type {number | null} */ state) {
    this.counts = counts;
    this.state = state;
    this.draw();
  }

  markRange(one, other) {
    this.selected = { from: Math.min(one, other), to: Math.max(one, other) };
    this.draw();
  }

  selectRange(one, other) {
    this.markRange(one, other);
    this.options.onSelect(this.selected.from, this.selected.to);
  }

  selectColumn(span) {
    const from = span - (span % this.rows);
    this.selectRange(from, Math.min(from + this.rows, this.spans) - 1);
  }

  moveCursor(/** @type {KeyboardEvent} */ event) {
    const steps = { ArrowLeft: -this.rows, ArrowRight: this.rows, ArrowUp: -1, ArrowDown: 1 };
    const step = steps[event.key];
    if (step !== undefined) {
      if (!event.shiftKey) this.anchor = -1;
      else if (this.anchor < 0) this.anchor = this.cursor;
      this.cursor = Math.min(Math.max(this.cursor + step, 0), this.spans - 1);
      this.options.onPoint(this.describeSpan(this.cursor));
      if (event.shiftKey) this.selectRange(this.anchor, this.cursor);
      else this.draw();
    } else if (event.key === "Enter" || event.key === " ") {
      this.selectColumn(this.cursor);
    } else if (event.key === "Escape" || event.key === "Backspace") {
      this.options.onReset();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  describeSpan(span) {
    const { spanSeconds } = this.options.timeline;
    const from = span * spanSeconds;
    return `${formatSeconds(from)} to ${formatSeconds(from + spanSeconds)}: ${formatValueAndUnit(Math.round(this.counts[span]))}`;
  }

  findSpanAt(/** @type {MouseEvent} */ event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.columns);
    const row = Math.floor((event.clientY - box.top) / this.getRowPx());
    const within = Math.min(Math.max(row, 0), this.rows - 1);
    return Math.min(Math.max(column * this.rows + within, 0), this.spans - 1);
  }

  getRowPx() {
    return HEAT_HEIGHT_PX / this.rows;
  }

  draw() {
    const { canvas, columns, rows, options } = this;
    const width = this.holder.clientWidth;
    if (!width) return;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round((HEAT_HEIGHT_PX + AXIS_PX) * devicePixelRatio);
    const context = canvas.getContext("2d");
    context.scale(devicePixelRatio, devicePixelRatio);
    const max = this.counts.reduce((one, other) => Math.max(one, other), 0);
    const columnPx = width / columns;
    const { background } = options.colours;
    const heat = this.state === null ? options.colours.heat : options.colours.states[this.state];
    for (let span = 0; span < this.spans; span += 1) {
      const isSelected = span >= this.selected.from && span <= this.selected.to;
      // The square root keeps spans with few samples visible beside those with many.
      const part = max > 0 ? Math.sqrt(this.counts[span] / max) : 0;
      const colour = blend(background, heat, 0.06 + 0.94 * part);
      context.fillStyle = formatCssColour(isSelected ? colour : blend(colour, background, FADED_PART));
      const [left, top] = [Math.floor(span / rows) * columnPx, (span % rows) * this.getRowPx()];
      context.fillRect(left, top, columnPx - (columnPx > 4 ? 1 : 0), this.getRowPx() - (this.getRowPx() > 3 ? 0.5 : 0));
    }
    this.drawAxis(context, columnPx);
    this.drawCursor(context, columnPx);
  }

  drawAxis(context, columnPx) {
    const secondPx = columnPx / (this.rows * this.options.timeline.spanSeconds);
    const step = AXIS_STEPS_SECONDS.find((seconds) => seconds * secondPx >= MIN_LABEL_PX);
    if (!step) return;
    context.fillStyle = this.options.colours.fadedText;
    context.font = "11px system-ui, sans-serif";
    const last = (this.holder.clientWidth - MIN_LABEL_PX / 2) / secondPx;
    for (let seconds = 0; seconds <= last; seconds += step) {
      context.fillRect(seconds * secondPx, HEAT_HEIGHT_PX, 1, 4);
      context.fillText(`${Number(seconds.toFixed(1))} s`, seconds * secondPx + 3, HEAT_HEIGHT_PX + 12);
    }
  }

  drawCursor(context, columnPx) {
    if (!this.holder.matches(":focus-visible")) return;
    const [column, row] = [Math.floor(this.cursor / this.rows), this.cursor % this.rows];
    context.strokeStyle = this.options.colours.focus;
    context.lineWidth = 2;
    context.strokeRect(column * columnPx, row * this.getRowPx(), Math.max(columnPx, 3), Math.max(this.getRowPx(), 3));
  }
}

/**
 * Counts the samples of each span in the selected states, either all or those at marked nodes.
 * @param {Timeline} timeline
 * @param {Uint8Array | null} states
 * @param {Uint8Array | null} marked
 */
function countSamplesBySpan(timeline, states, marked) {
  const counts = new Float64Array(timeline.spans);
  for (let span = 0; span < timeline.spans; span += 1) {
    for (let entry = timeline.start[span]; entry < timeline.start[span + 1]; entry += 1) {
      const isSelected = !states || states[timeline.state[entry]];
      if (isSelected && (!marked || marked[timeline.node[entry]])) counts[span] += timeline.count[entry];
    }
  }
  return counts;
}
