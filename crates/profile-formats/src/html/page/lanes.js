// Lanes: one row for each thread over time, coloured by state. A run of a lane has one state and one stack.

import { formatCssColour } from "./colours.js";
import { readColumn, readSignedColumn } from "./columns.js";
import { createElement } from "./elements.js";
import { required } from "./required.js";

/** @import { Bands } from "./bands.js" */
/** @import { ThemeColours } from "./colours.js" */
/** @import { LaneMarks } from "./marks.js" */

/** The index of the state of threads on a CPU. */
export const ON_CPU = 0;

/**
 * Runs by lane and time. Times are in units of `unitSeconds`.
 * @typedef {object} Lanes
 * @property {number} event the index of the event whose samples have the states
 * @property {number} unitSeconds
 * @property {string[]} names the thread of each lane
 * @property {number[]} process the index of the process of each lane
 * @property {number[]} tid the id of the thread of each lane
 * @property {number[]} first the first run of each lane
 * @property {number[]} last the end of the runs of each lane
 * @property {Float64Array} start
 * @property {Float64Array} end
 * @property {Uint8Array} state an index of `states` of the profile
 * @property {Int32Array} node
 * @property {Uint32Array} thread
 * @property {Float64Array} value the sum of the values of the samples of a run
 * @property {(run: number) => string} getName the thread of a run
 */

/** @returns {Lanes} */
export function readLanes(json, { threads, processes, strings }) {
  const laneThreads = readColumn(json.thread, Uint32Array);
  const runs = readColumn(json.runs, Uint32Array);
  const [gap, length] = [readColumn(json.gap, Float64Array), readColumn(json.length, Float64Array)];
  const node = readSignedColumn(json.node);
  for (let run = 1; run < node.length; run += 1) node[run] += node[run - 1];
  const starts = new Uint32Array(runs.length + 1);
  const [start, end] = [new Float64Array(gap.length), new Float64Array(gap.length)];
  const thread = new Uint32Array(gap.length);
  for (let lane = 0; lane < runs.length; lane += 1) {
    starts[lane + 1] = starts[lane] + runs[lane];
    let time = 0;
    for (let run = starts[lane]; run < starts[lane + 1]; run += 1) {
      start[run] = time + gap[run];
      end[run] = start[run] + length[run];
      time = end[run];
      thread[run] = laneThreads[lane];
    }
  }
  const getName = (index) => `${strings[threads.comm[index]]} ${threads.tid[index]}`;
  const getIds = (lane) => [processes.pid[threads.process[laneThreads[lane]]], threads.tid[laneThreads[lane]]];
  const compareIds = (/** @type {number[]} */ [pid, tid], /** @type {number[]} */ [otherPid, otherTid]) =>
    pid - otherPid || tid - otherTid;
  const order = [...laneThreads.keys()].sort((one, other) => compareIds(getIds(one), getIds(other)));
  return {
    event: json.event,
    value: readColumn(json.value, Float64Array),
    unitSeconds: json.unit_ns / 1e9,
    names: order.map((lane) => getName(laneThreads[lane])),
    process: order.map((lane) => threads.process[laneThreads[lane]]),
    tid: order.map((lane) => threads.tid[laneThreads[lane]]),
    first: order.map((lane) => starts[lane]),
    last: order.map((lane) => starts[lane + 1]),
    start,
    end,
    state: readColumn(json.state, Uint8Array),
    node,
    thread,
    getName: (run) => getName(thread[run]),
  };
}

/** Lists the functions of the path from the root to a node of the tree of all stacks. */
export function listFunctionsTo({ parent, function: functionOf }, /** @type {number} */ end) {
  const path = [];
  for (let node = end; node > 0; node = parent[node]) path.push(functionOf[node]);
  return path.reverse();
}

/** Finds the first run of a lane that ends after a time, or the end of the lane. */
export function findRun(/** @type {Lanes} */ { first, last, end }, /** @type {number} */ lane, /** @type {number} */ time) {
  let [low, high] = [first[lane], last[lane]];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

export const LANE_PX = 18;
const LANE_NAME_PX = 190;

export class LanesView {
  /**
   * @param {HTMLElement} holder
   * @param {{lanes: Lanes, colours: ThemeColours, bands: Bands | null, marks: LaneMarks | null,
   *   onPoint: (run: number | null, mark: number | null) => void, onSelect: (run: number) => void}} options
   */
  constructor(holder, options) {
    this.options = options;
    this.holder = holder;
    this.canvas = /** @type {HTMLCanvasElement} */ (createElement("canvas", { "aria-hidden": "true" }));
    this.spacer = createElement("div");
    holder.append(this.canvas, this.spacer);
    /** The shown range, in units. */
    this.from = 0;
    this.to = 1;
    this.lane = 0;
    /** @type {number | null} the selected run */
    this.run = null;
    this.listen();
  }

  listen() {
    const { holder, options } = this;
    holder.addEventListener("scroll", () => this.draw());
    holder.addEventListener("pointermove", (event) => options.onPoint(this.findRunAt(event), this.findMarkAt(event)));
    holder.addEventListener("pointerleave", () => options.onPoint(null, null));
    holder.addEventListener("click", (event) => {
      const run = this.findRunAt(event);
      if (run === null) return;
      this.lane = this.findLaneAt(event);
      this.select(run);
      options.onSelect(run);
    });
    holder.addEventListener("keydown", (event) => this.moveSelection(event));
    for (const change of ["focus", "blur"]) holder.addEventListener(change, () => this.draw());
    new ResizeObserver(() => this.draw()).observe(holder);
  }

  /** Shows a time range. */
  show(/** @type {number} */ fromSeconds, /** @type {number} */ toSeconds) {
    const { unitSeconds } = this.options.lanes;
    [this.from, this.to] = [fromSeconds / unitSeconds, toSeconds / unitSeconds];
    this.draw();
  }

  select(/** @type {number | null} */ run) {
    this.run = run;
    this.options.onPoint(run, null);
    this.draw();
  }

  moveSelection(/** @type {KeyboardEvent} */ event) {
    const { lanes } = this.options;
    const [first, end] = [lanes.first[this.lane], lanes.last[this.lane]];
    const current = this.run ?? findRun(lanes, this.lane, this.from) - 1;
    const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
    const moves = {
      ArrowUp: () => this.selectLane(clamp(this.lane - 1, 0, lanes.names.length - 1)),
      ArrowDown: () => this.selectLane(clamp(this.lane + 1, 0, lanes.names.length - 1)),
      ArrowLeft: () => this.select(clamp(current - 1, first, end - 1)),
      ArrowRight: () => this.select(clamp(current + 1, first, end - 1)),
      Enter: () => this.run !== null && this.options.onSelect(this.run),
    };
    const move = moves[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    move();
    event.preventDefault();
    event.stopPropagation();
  }

  /** Selects the run of another lane at the time of the selected one. */
  selectLane(/** @type {number} */ lane) {
    const { lanes } = this.options;
    const time = this.run === null ? this.from : Math.max(lanes.start[this.run], this.from);
    this.lane = lane;
    const top = lane * LANE_PX;
    const { holder } = this;
    if (top < holder.scrollTop) holder.scrollTop = top;
    else if (top + LANE_PX > holder.scrollTop + holder.clientHeight) holder.scrollTop = top + LANE_PX - holder.clientHeight;
    this.select(Math.min(findRun(lanes, lane, time), lanes.last[lane] - 1));
  }

  findLaneAt(/** @type {MouseEvent} */ event) {
    const y = event.clientY - this.canvas.getBoundingClientRect().top + this.holder.scrollTop;
    return Math.floor(y / LANE_PX);
  }

  /** @returns {number | null} the run at the pointer */
  findRunAt(/** @type {MouseEvent} */ event) {
    const { lanes } = this.options;
    const lane = this.findLaneAt(event);
    const time = this.findTimeAt(event);
    if (lane < 0 || lane >= lanes.names.length || time < this.from) return null;
    const run = findRun(lanes, lane, time);
    return run < lanes.last[lane] && lanes.start[run] <= time ? run : null;
  }

  /** @returns {number} the time at the pointer, in units */
  findTimeAt(/** @type {MouseEvent} */ event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left - LANE_NAME_PX;
    return this.from + x / this.getUnitPx();
  }

  /** @returns {number | null} the runtime event whose mark is at the pointer */
  findMarkAt(/** @type {MouseEvent} */ event) {
    const unitNs = this.options.lanes.unitSeconds * 1e9;
    const nsPerPx = unitNs / this.getUnitPx();
    return this.options.marks?.findAt(this.findLaneAt(event), this.findTimeAt(event) * unitNs, nsPerPx) ?? null;
  }

  getUnitPx() {
    return Math.max(this.holder.clientWidth - LANE_NAME_PX, 1) / (this.to - this.from);
  }

  draw() {
    const { canvas, holder } = this;
    const [width, height] = [holder.clientWidth, holder.clientHeight];
    if (!width || !height) return;
    const { lanes, colours } = this.options;
    canvas.width = Math.round(width * devicePixelRatio);
    canvas.height = Math.round(height * devicePixelRatio);
    canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(lanes.names.length * LANE_PX - height, 0)}px`;
    const context = required(canvas.getContext("2d"));
    context.scale(devicePixelRatio, devicePixelRatio);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    const first = Math.floor(holder.scrollTop / LANE_PX);
    const last = Math.min(Math.ceil((holder.scrollTop + height) / LANE_PX), lanes.names.length);
    const fills = colours.states.map(formatCssColour);
    for (let lane = first; lane < last; lane += 1) {
      const top = lane * LANE_PX - holder.scrollTop;
      context.fillStyle = colours.fadedText;
      context.fillText(lanes.names[lane], 2, top + LANE_PX / 2, LANE_NAME_PX - 8);
      this.drawLane(context, lane, top, fills);
    }
    this.drawEvents(context, first, last);
  }

  /** Draws bands over the lanes of their process, and the marks of each lane. */
  drawEvents(context, /** @type {number} */ first, /** @type {number} */ end) {
    const { lanes, bands, marks } = this.options;
    const unitNs = lanes.unitSeconds * 1e9;
    const widthPx = Math.max(this.holder.clientWidth - LANE_NAME_PX, 1);
    const axis = { from: this.from * unitNs, to: this.to * unitNs, widthPx };
    for (let lane = first; lane < end; ) {
      let next = lane + 1;
      while (next < end && lanes.process[next] === lanes.process[lane]) next += 1;
      const top = lane * LANE_PX - this.holder.scrollTop;
      const place = { left: LANE_NAME_PX, top, height: (next - lane) * LANE_PX };
      bands?.drawProcess(context, lanes.process[lane], axis, place);
      lane = next;
    }
    for (let lane = first; lane < end; lane += 1) {
      marks?.drawLane(context, lane, axis, { left: LANE_NAME_PX, top: lane * LANE_PX - this.holder.scrollTop });
    }
  }

  /** Draws the runs of a lane, at most one for each pixel. */
  drawLane(context, lane, top, /** @type {string[]} */ fills) {
    const { lanes } = this.options;
    const { start, end, state, last } = lanes;
    const unitPx = this.getUnitPx();
    for (let run = findRun(lanes, lane, this.from); run < last[lane] && start[run] < this.to; ) {
      const left = Math.max(start[run] - this.from, 0) * unitPx;
      const right = Math.min(end[run], this.to) * unitPx - this.from * unitPx;
      const widthPx = Math.max(right - left, 1);
      context.fillStyle = fills[state[run]];
      context.fillRect(LANE_NAME_PX + left, top + 1, widthPx, LANE_PX - 3);
      if (run === this.run) {
        context.strokeStyle = this.options.colours.focus;
        context.lineWidth = 2;
        context.strokeRect(LANE_NAME_PX + left, top + 1, widthPx, LANE_PX - 3);
      }
      run = right - left >= 1 ? run + 1 : Math.max(findRun(lanes, lane, this.from + (left + 1) / unitPx), run + 1);
    }
  }
}
