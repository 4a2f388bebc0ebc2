// The views over time: heat map with the selected range, lanes of threads, runtime events, and the time of an incident.

import { Bands } from "./bands.js";
import { announce, formatDuration, formatSeconds, formatValueAndUnit, getElement } from "./elements.js";
import { describeEvent, EventView } from "./event_view.js";
import { nameWaitingFunction } from "./folded_waits.js";
import { HeatMap } from "./heat_map.js";
import { readIncident } from "./incident.js";
import { IncidentView } from "./incident_view.js";
import { LanesView } from "./lanes.js";
import { LaneMarks } from "./marks.js";
import { required } from "./required.js";
import { showStack } from "./stack_list.js";
import { createStateLegend, STATES } from "./states.js";

/** @import { ThemeColours } from "./colours.js" */
/** @import { SpanRange } from "./incident.js" */
/** @import { Lanes } from "./lanes.js" */
/** @import { SearchResult } from "./search.js" */
/** @import { Presenter } from "./shares.js" */
/** @import { ShownSamples } from "./shown_samples.js" */

export class TimeViews {
  /**
   * @param {ShownSamples} shown
   * @param {Presenter} presenter
   * @param {ThemeColours} colours
   * @param {{onSelectRange: (range: SpanRange) => void, onSelectFunction: (functionIndex: number) => void,
   *   onZoomToStack: (thread: number, path: number[]) => void}} options
   */
  constructor(shown, presenter, colours, options) {
    this.shown = shown;
    this.options = options;
    const { measurements, timelines, lanes, runtimeEvents: events } = shown.profile;
    const bands = events && new Bands(events, colours);
    const incident = shown.hasTime ? readIncident(measurements[0], timelines[0]) : null;
    /** Describes the selected range. */
    this.selectedText = "";
    this.heatMap = new HeatMap(getElement("heat"), {
      timeline: timelines[0],
      colours,
      bands,
      incidentSeconds: incident?.seconds ?? null,
      onSelect: (from, to) => options.onSelectRange({ from, to }),
      onReset: () => options.onSelectRange(shown.wholeRange),
      onPoint: (text) => this.showSelected(text),
    });
    this.incidentView = incident && new IncidentView(incident, { presenter, ...options });
    this.lanes = lanes && this.createLanesView(lanes, bands, colours);
    this.eventView = events && new EventView(shown.profile, options.onZoomToStack);
  }

  createLanesView(/** @type {Lanes} */ lanes, /** @type {Bands | null} */ bands, /** @type {ThemeColours} */ colours) {
    const { runtimeEvents: events, threads } = this.shown.profile;
    return new LanesView(getElement("lanes"), {
      lanes,
      colours,
      bands,
      marks: events && new LaneMarks(events, lanes, threads, colours),
      onPoint: (run, mark) => {
        const parts = [mark === null ? "" : describeEvent(required(events), mark), run === null ? "" : this.describeRun(run)];
        getElement("lane").textContent = parts.filter(Boolean).join("; ");
      },
      onSelect: (run) => this.showRun(run),
    });
  }

  /** Describes a run: thread, state, begin, end and length. */
  describeRun(/** @type {number} */ run) {
    const { states } = this.shown.profile;
    const lanes = required(this.shown.profile.lanes);
    const [start, end] = [lanes.start[run], lanes.end[run]].map((time) => time * lanes.unitSeconds);
    const length = formatDuration((end - start) * 1e9);
    return `${lanes.getName(run)}: ${STATES[states[lanes.state[run]]]} for ${length}, ${formatSeconds(start)} to ${formatSeconds(end)}`;
  }

  /** Shows the stack of a run, with the way to it in the flame graph. */
  showRun(/** @type {number} */ run) {
    const { functions } = this.shown.profile;
    const lanes = required(this.shown.profile.lanes);
    const path = this.shown.listFunctionsTo(lanes.node[run]);
    const names = path.map((index) => functions.name[index]);
    const onZoom = () => this.options.onZoomToStack(lanes.thread[run], path);
    showStack(getElement("lane-stack"), this.describeRun(run), names, onZoom);
    announce(`${this.describeRun(run)}, in ${nameWaitingFunction(functions, path)}`);
  }

  /** Draws the view of a tab, which had no size while it was hidden. */
  drawTab(/** @type {string} */ tab) {
    if (tab === "lanes") required(this.lanes).draw();
    if (tab === "events") required(this.eventView).draw();
  }

  /** Draws with the colours of another theme. */
  redraw() {
    this.heatMap.draw();
    this.lanes?.draw();
  }

  /** Shows the values of each span, either of all stacks or of stacks that match a search. */
  showHeat(/** @type {SearchResult | null} */ search) {
    if (!this.shown.hasTime) return;
    this.heatMap.show(this.shown.sumBySpan(search), this.shown.sampledStates.length > 0);
    getElement("heat-legend").replaceChildren(...createStateLegend(this.shown.listShownStates()));
  }

  /** Shows another event or other threads, which have the same spans. */
  setTimeline() {
    this.heatMap.setTimeline(this.shown.profile.timelines[0]);
  }

  /** Compares the time before an incident with the time since. */
  showIncident() {
    const { shown } = this;
    this.incidentView?.show(shown.foldWaits(), (range) => shown.cutTimeline(range), shown.stateChoice.mask);
  }

  /** Shows the selected range in all views, with the samples or the time in it. */
  showRange(/** @type {number} */ total) {
    const { shown } = this;
    const { from, to } = shown.range;
    const { spanSeconds } = shown.profile.timelines[0];
    const [begin, end] = [from * spanSeconds, (to + 1) * spanSeconds];
    const isWhole = shown.isWholeTime();
    getElement("from").value = begin.toFixed(2);
    getElement("to").value = end.toFixed(2);
    getElement("whole").disabled = isWhole;
    this.heatMap.markRange(from, to);
    this.lanes?.show(begin, end);
    this.eventView?.setRange(begin, isWhole ? Infinity : end);
    const range = isWhole ? "whole time" : `${formatSeconds(begin)} to ${formatSeconds(end)}`;
    this.selectedText = `${range}: ${formatValueAndUnit(total)}`;
    this.showSelected("");
  }

  /** Shows the selected range and the span at the pointer. */
  showSelected(/** @type {string} */ pointed) {
    getElement("selected").textContent = pointed ? `${this.selectedText} (${pointed})` : this.selectedText;
  }

  /** Reads the range that the user typed. @returns {SpanRange} */
  readTypedRange() {
    const { spanSeconds } = this.shown.profile.timelines[0];
    const last = this.shown.wholeRange.to;
    const readSpan = (id, other) => (getElement(id).value === "" ? other : Number(getElement(id).value) / spanSeconds);
    const clampSpan = (span) => Math.min(Math.max(Math.round(span), 0), last);
    const from = clampSpan(Math.floor(readSpan("from", 0) + 1e-6));
    const to = clampSpan(Math.ceil(readSpan("to", last + 1) - 1e-6) - 1);
    return { from: Math.min(from, to), to: Math.max(from, to) };
  }
}
