// The heat map of samples over time. Each column shows consecutive spans from top to bottom; ranges can be selected.

import { blend, createShade } from "./colours.js";
import { createElement, formatSeconds, formatValueAndUnit } from "./elements.js";
import { required } from "./required.js";
import { createSpanCounts } from "./spans.js";
import { formatStateShares } from "./state_colours.js";

/** @import { Bands } from "./bands.js" */
/** @import { Shade, ThemeColours } from "./colours.js" */
/** @import { Timeline } from "./document.js" */
/** @import { SpanCounts } from "./spans.js" */

/** The possible numbers of spans per column. The first that needs at most `MAX_COLUMNS` is used. */
const SPANS_PER_COLUMN = [5, 10, 25, 50];
const MAX_COLUMNS = 300;

const HEAT_HEIGHT_PX = 70;
const AXIS_PX = 16;
const MIN_LABEL_PX = 60;
/** Narrower columns are too narrow for spans that are divided by their states. */
const MIN_DIVIDED_COLUMN_PX = 12;

/** The number of shades of a colour: few enough to create them for each picture. */
const HEAT_SHADES = 64;

const AXIS_STEPS_SECONDS = [0.1, 1, 10, 100, 1e3, 1e4, 1e5].flatMap((unit) => [unit, 2 * unit, 5 * unit]);

export class HeatMap {
  /**
   * @param {HTMLElement} holder
   * @param {{timeline: Timeline, colours: ThemeColours, bands: Bands | null, incidentSeconds: number | null, onSelect: (from: number, to: number) => void,
   *   onReset: () => void, onPoint: (text: string) => void}} options
   */
  constructor(holder, options) {
    this.options = options;
    this.holder = holder;
    this.canvas = /** @type {HTMLCanvasElement} */ (createElement("canvas", { "aria-hidden": "true" }));
    holder.append(this.canvas);
    const { spans } = options.timeline;
    this.spans = spans;
    this.rows = SPANS_PER_COLUMN.find((rows) => spans / rows <= MAX_COLUMNS) ?? required(SPANS_PER_COLUMN.at(-1));
    this.columns = Math.ceil(spans / this.rows);
    /** @type {SpanCounts} */
    this.counts = createSpanCounts(spans, []);
    this.columnCounts = createSpanCounts(this.columns, []);
    /** Whether spans have the colours of states. */
    this.isByState = false;
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

  /** Shows the values of each span, either in one colour or in the colours of their states. */
  show(/** @type {SpanCounts} */ counts, /** @type {boolean} */ isByState) {
    this.counts = counts;
    this.isByState = isByState;
    const sumColumn = (values) => {
      const sums = new Float64Array(this.columns);
      values.forEach((value, span) => (sums[Math.floor(span / this.rows)] += value));
      return sums;
    };
    /** The values of the spans of each column. */
    this.columnCounts = createSpanCounts(this.columns, counts.byState.map(sumColumn));
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
    const { total, byState } = this.counts;
    const text = `${formatSeconds(from)} to ${formatSeconds(from + spanSeconds)}: ${formatValueAndUnit(Math.round(total[span]))}`;
    const counts = this.isByState ? byState.map((column) => column[span]) : [];
    const shares = formatStateShares(counts, total[span], this.options.colours.stateNames);
    return shares ? `${text}, ${shares}` : text;
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
    const { canvas, columns } = this;
    const width = this.holder.clientWidth;
    if (!width) return;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round((HEAT_HEIGHT_PX + AXIS_PX) * devicePixelRatio);
    const context = required(canvas.getContext("2d"));
    context.scale(devicePixelRatio, devicePixelRatio);
    const columnPx = width / columns;
    if (this.isByState && columnPx < MIN_DIVIDED_COLUMN_PX) this.drawColumns(context, columnPx);
    else this.drawCells(context, columnPx);
    this.drawBands(context, width);
    this.drawIncident(context, columnPx);
    this.drawAxis(context, columnPx);
    this.drawCursor(context, columnPx);
  }

  /** Draws the cell of each span, divided by the shares of the states if spans have their colours. */
  drawCells(context, /** @type {number} */ columnPx) {
    const { heat, states, background } = this.options.colours;
    const { total, byState } = this.isByState ? this.counts : { ...this.counts, byState: [this.counts.total] };
    const shades = (this.isByState ? states : [heat]).map((colour) => createHeatShades(colour, background));
    const [empty] = createHeatShades(heat, background);
    const max = total.reduce((one, other) => Math.max(one, other), 0);
    const width = columnPx - (columnPx > 4 ? 1 : 0);
    const height = this.getRowPx() - (this.getRowPx() > 3 ? 0.5 : 0);
    for (let span = 0; span < this.spans; span += 1) {
      const isSelected = span >= this.selected.from && span <= this.selected.to;
      const top = (span % this.rows) * this.getRowPx();
      let left = Math.floor(span / this.rows) * columnPx;
      if (total[span] === 0) {
        context.fillStyle = isSelected ? empty.plain : empty.faded;
        context.fillRect(left, top, width, height);
        continue;
      }
      // The square root keeps spans with few samples visible beside those with many.
      const shade = Math.round(Math.sqrt(total[span] / max) * (HEAT_SHADES - 1));
      byState.forEach((column, state) => {
        const { plain, faded } = shades[state][shade];
        const partPx = (column[span] / total[span]) * width;
        context.fillStyle = isSelected ? plain : faded;
        context.fillRect(left, top, partPx, height);
        left += partPx;
      });
    }
  }

  /** Draws each column divided from top to bottom by the shares of the states of its spans. */
  drawColumns(context, /** @type {number} */ columnPx) {
    const { heat, states, background } = this.options.colours;
    const { total, byState } = this.columnCounts;
    const shades = states.map((colour) => createHeatShades(colour, background));
    const [empty] = createHeatShades(heat, background);
    const max = total.reduce((one, other) => Math.max(one, other), 0);
    for (let column = 0; column < this.columns; column += 1) {
      // Whole pixels leave no seams between columns.
      const [left, right] = [column, column + 1].map((at) => Math.round(at * columnPx));
      const place = { left, width: right - left, ...this.getSelectedRows(column) };
      if (total[column] === 0) {
        fillColumnPart(context, empty, 0, HEAT_HEIGHT_PX, place);
        continue;
      }
      const shade = Math.round(Math.sqrt(total[column] / max) * (HEAT_SHADES - 1));
      let top = 0;
      byState.forEach((counts, state) => {
        const bottom = top + (counts[column] / total[column]) * HEAT_HEIGHT_PX;
        fillColumnPart(context, shades[state][shade], top, bottom, place);
        top = bottom;
      });
    }
  }

  /** Returns the top and the bottom of the selected spans of a column. */
  getSelectedRows(/** @type {number} */ column) {
    const first = column * this.rows;
    const from = Math.max(this.selected.from - first, 0);
    const end = Math.min(this.selected.to + 1 - first, this.rows);
    return { selectedTop: from * this.getRowPx(), selectedBottom: end * this.getRowPx() };
  }

  /** Draws the bands over the columns of their times. */
  drawBands(context, /** @type {number} */ widthPx) {
    const { bands, timeline } = this.options;
    const axis = { from: 0, to: this.columns * this.rows * timeline.spanSeconds * 1e9, widthPx };
    bands?.draw(context, axis, { left: 0, top: 0, height: HEAT_HEIGHT_PX });
  }

  /** Draws a line at the moment of the incident for which the profile was kept. */
  drawIncident(context, /** @type {number} */ columnPx) {
    const { incidentSeconds, timeline, colours } = this.options;
    if (incidentSeconds === null) return;
    const left = (incidentSeconds / (this.rows * timeline.spanSeconds)) * columnPx;
    context.fillStyle = colours.focus;
    context.fillRect(Math.round(left) - 1, 0, 2, HEAT_HEIGHT_PX + AXIS_PX);
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

/** Fills a part of a column, which is faded outside of the selected rows. */
function fillColumnPart(context, /** @type {Shade} */ { plain, faded }, top, bottom, { left, width, selectedTop, selectedBottom }) {
  context.fillStyle = faded;
  context.fillRect(left, top, width, bottom - top);
  const [from, to] = [Math.max(top, selectedTop), Math.min(bottom, selectedBottom)];
  context.fillStyle = plain;
  if (from < to) context.fillRect(left, from, width, to - from);
}

/** Creates the shades of a colour from an empty span to the fullest one. */
function createHeatShades(/** @type {number[]} */ colour, /** @type {number[]} */ background) {
  const part = (shade) => 0.06 + (0.94 * shade) / (HEAT_SHADES - 1);
  return Array.from({ length: HEAT_SHADES }, (_, shade) => createShade(blend(background, colour, part(shade)), background));
}
