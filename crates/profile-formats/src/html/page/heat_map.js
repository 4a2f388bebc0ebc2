// Samples over time: a column for each part of a second or for more, its spans from top to bottom; a range is selected.

/** A column has this many spans: the fewest that need no more columns than can be told apart. */
const COLUMN_SPANS = [5, 10, 25, 50];
const MOST_COLUMNS = 300;

const HEAT_HEIGHT_PX = 70;
const AXIS_PX = 16;
const LEAST_LABEL_PX = 60;
const AXIS_STEPS_SECONDS = [0.1, 1, 10, 100, 1e3, 1e4, 1e5].flatMap((unit) => [unit, 2 * unit, 5 * unit]);

class HeatMap {
  /**
   * @param {HTMLElement} holder
   * @param {{timeline: Timeline, colours: Colours, onSelect: (from: number, to: number) => void, onWhole: () => void,
   *   onPoint: (text: string) => void}} setting
   */
  constructor(holder, setting) {
    this.setting = setting;
    this.holder = holder;
    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { "aria-hidden": "true" }));
    holder.append(this.canvas);
    const { spans } = setting.timeline;
    this.spans = spans;
    this.rows = COLUMN_SPANS.find((rows) => spans / rows <= MOST_COLUMNS) ?? COLUMN_SPANS.at(-1);
    this.columns = Math.ceil(spans / this.rows);
    /** @type {Float64Array} */
    this.counts = new Float64Array(spans);
    this.selected = { from: 0, to: spans - 1 };
    this.cursor = 0;
    this.anchor = 0;
    this.dragFrom = -1;
    this.listen();
  }

  listen() {
    const { holder, setting } = this;
    holder.addEventListener("pointerdown", (event) => {
      holder.setPointerCapture(event.pointerId);
      this.dragFrom = this.spanAt(event);
      this.mark(this.dragFrom, this.dragFrom);
    });
    holder.addEventListener("pointermove", (event) => {
      const span = this.spanAt(event);
      setting.onPoint(this.spanText(span));
      if (this.dragFrom >= 0) this.mark(this.dragFrom, span);
    });
    holder.addEventListener("pointerleave", () => setting.onPoint(""));
    holder.addEventListener("pointerup", (event) => {
      const span = this.spanAt(event);
      if (this.dragFrom === span) this.selectColumn(span);
      else if (this.dragFrom >= 0) this.select(this.dragFrom, span);
      this.dragFrom = -1;
    });
    holder.addEventListener("keydown", (event) => this.walk(event));
    holder.addEventListener("focus", () => this.draw());
    holder.addEventListener("blur", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  /** Shows how many samples each span has. */
  show(/** @type {Float64Array} */ counts) {
    this.counts = counts;
    this.draw();
  }

  mark(one, other) {
    this.selected = { from: Math.min(one, other), to: Math.max(one, other) };
    this.draw();
  }

  select(one, other) {
    this.mark(one, other);
    this.setting.onSelect(this.selected.from, this.selected.to);
  }

  selectColumn(span) {
    const from = span - (span % this.rows);
    this.select(from, Math.min(from + this.rows, this.spans) - 1);
  }

  walk(/** @type {KeyboardEvent} */ event) {
    const steps = { ArrowLeft: -this.rows, ArrowRight: this.rows, ArrowUp: -1, ArrowDown: 1 };
    const step = steps[event.key];
    if (step !== undefined) {
      if (!event.shiftKey) this.anchor = -1;
      else if (this.anchor < 0) this.anchor = this.cursor;
      this.cursor = Math.min(Math.max(this.cursor + step, 0), this.spans - 1);
      this.setting.onPoint(this.spanText(this.cursor));
      if (event.shiftKey) this.select(this.anchor, this.cursor);
      else this.draw();
    } else if (event.key === "Enter" || event.key === " ") {
      this.selectColumn(this.cursor);
    } else if (event.key === "Escape" || event.key === "Backspace") {
      this.setting.onWhole();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  spanText(span) {
    const from = span * this.setting.timeline.spanSeconds;
    return `${secondsText(from)} to ${secondsText(from + this.setting.timeline.spanSeconds)}: ${sampleText(this.counts[span])}`;
  }

  spanAt(/** @type {MouseEvent} */ event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.columns);
    const row = Math.floor((event.clientY - box.top) / this.rowPx());
    const within = Math.min(Math.max(row, 0), this.rows - 1);
    return Math.min(Math.max(column * this.rows + within, 0), this.spans - 1);
  }

  rowPx() {
    return HEAT_HEIGHT_PX / this.rows;
  }

  draw() {
    const { canvas, columns, rows, setting } = this;
    const width = this.holder.clientWidth;
    if (!width) return;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round((HEAT_HEIGHT_PX + AXIS_PX) * devicePixelRatio);
    const context = canvas.getContext("2d");
    context.scale(devicePixelRatio, devicePixelRatio);
    const most = this.counts.reduce((one, other) => Math.max(one, other), 0);
    const columnPx = width / columns;
    const { background, heat } = setting.colours;
    for (let span = 0; span < this.spans; span += 1) {
      const isSelected = span >= this.selected.from && span <= this.selected.to;
      // The square root: what is rare is still seen beside what is frequent.
      const part = most > 0 ? Math.sqrt(this.counts[span] / most) : 0;
      const colour = blend(background, heat, 0.06 + 0.94 * part);
      context.fillStyle = cssColour(isSelected ? colour : blend(colour, background, FADED));
      const [left, top] = [Math.floor(span / rows) * columnPx, (span % rows) * this.rowPx()];
      context.fillRect(left, top, columnPx - (columnPx > 4 ? 1 : 0), this.rowPx() - (this.rowPx() > 3 ? 0.5 : 0));
    }
    this.drawAxis(context, columnPx);
    this.drawCursor(context, columnPx);
  }

  drawAxis(context, columnPx) {
    const secondPx = columnPx / (this.rows * this.setting.timeline.spanSeconds);
    const step = AXIS_STEPS_SECONDS.find((seconds) => seconds * secondPx >= LEAST_LABEL_PX);
    if (!step) return;
    context.fillStyle = this.setting.colours.fadedText;
    context.font = "11px system-ui, sans-serif";
    const last = (this.holder.clientWidth - LEAST_LABEL_PX / 2) / secondPx;
    for (let seconds = 0; seconds <= last; seconds += step) {
      context.fillRect(seconds * secondPx, HEAT_HEIGHT_PX, 1, 4);
      context.fillText(`${Number(seconds.toFixed(1))} s`, seconds * secondPx + 3, HEAT_HEIGHT_PX + 12);
    }
  }

  drawCursor(context, columnPx) {
    if (!this.holder.matches(":focus-visible")) return;
    const [column, row] = [Math.floor(this.cursor / this.rows), this.cursor % this.rows];
    context.strokeStyle = this.setting.colours.focus;
    context.lineWidth = 2;
    context.strokeRect(column * columnPx, row * this.rowPx(), Math.max(columnPx, 3), Math.max(this.rowPx(), 3));
  }
}

/**
 * How many samples each span has, of all or of those at nodes that are marked.
 * @param {Timeline} timeline
 * @param {Uint8Array | null} marked
 */
function spanCounts(timeline, marked) {
  const counts = new Float64Array(timeline.spans);
  for (let span = 0; span < timeline.spans; span += 1) {
    for (let entry = timeline.start[span]; entry < timeline.start[span + 1]; entry += 1) {
      if (!marked || marked[timeline.node[entry]]) counts[span] += timeline.count[entry];
    }
  }
  return counts;
}
