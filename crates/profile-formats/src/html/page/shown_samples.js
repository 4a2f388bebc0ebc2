// What of the profile is shown: an event, a time range, states and threads.

import { foldWaits, hasWaitFrames } from "./folded_waits.js";
import { listFunctionsTo } from "./lanes.js";
import { required } from "./required.js";
import { markMatchedNodes } from "./search.js";
import { countSamplesBySpan, createRunFilter, cutRuns, keepThreads, sliceTimeline, sumRunsBySpan } from "./spans.js";
import { ALL_STATES, listSampledStates, listStateChoices } from "./states.js";

/** @import { Profile, Timeline } from "./document.js" */
/** @import { SpanRange } from "./incident.js" */
/** @import { SearchResult } from "./search.js" */
/** @import { StateChoice } from "./states.js" */

export class ShownSamples {
  constructor(/** @type {Profile} */ profile) {
    /** Its measurements and timelines are of the selected event and threads. */
    this.profile = profile;
    const [{ spans }] = profile.timelines;
    this.hasTime = spans > 1;
    /** @type {SpanRange} */
    this.wholeRange = { from: 0, to: spans - 1 };
    this.range = this.wholeRange;
    /** 1 for each thread that is shown; null shows all. @type {Uint8Array | null} */
    this.threadMask = null;
    this.eventIndex = profile.initialEvent;
    this.hasWaitFrames = hasWaitFrames(profile.functions);
    this.showsWaitFrames = profile.showsWaitFrames;
    /** The stacks without the frames in which threads wait. */
    this.foldedTree = this.hasWaitFrames ? foldWaits(profile.tree, profile.functions) : profile.tree;
    /** The samples of each profile, of all threads. @type {number[]} */
    this.sampleCounts = [];
    /** The states of the event's samples, if there are several. @type {number[]} */
    this.sampledStates = [];
    /** @type {StateChoice[]} */
    this.stateChoices = [ALL_STATES];
    this.stateChoice = ALL_STATES;
    this.selectEvent(profile.initialEvent);
  }

  isDifference() {
    return this.profile.measurements.length > 1;
  }

  isWholeTime() {
    return this.range.from === this.wholeRange.from && this.range.to === this.wholeRange.to;
  }

  /** Selects an event, with all its states. */
  selectEvent(/** @type {number} */ index) {
    const { profile, threadMask } = this;
    Object.assign(profile, profile.events[index]);
    this.eventIndex = index;
    this.sampleCounts = profile.timelines.map(countSamples);
    if (threadMask) profile.timelines = profile.timelines.map((timeline) => keepThreads(timeline, threadMask));
    this.sampledStates = this.isDifference() ? [] : listSampledStates(profile.timelines[0], profile.states);
    this.stateChoices = listStateChoices(this.sampledStates, profile.states);
    this.stateChoice = ALL_STATES;
  }

  /** Lists the names of the states that are shown; none if all samples have the same state. */
  listShownStates() {
    const { mask } = this.stateChoice;
    const shown = this.sampledStates.filter((state) => !mask || mask[state]);
    return shown.map((state) => this.profile.states[state]);
  }

  /** Sums the values of each span, either of all stacks or of stacks that match a search. */
  sumBySpan(/** @type {SearchResult | null} */ search) {
    const { lanes, timelines, tree } = this.profile;
    const marked = search && markMatchedNodes(tree, search);
    const { mask } = this.stateChoice;
    const runFilter = this.getRunFilter();
    return runFilter
      ? sumRunsBySpan(required(lanes), runFilter, timelines[0], mask, marked)
      : countSamplesBySpan(timelines[0], mask, marked);
  }

  /** The stacks and timelines, and the part of them that is shown. Runs are cut at the ends of the selected range. */
  select() {
    const { range } = this;
    const profile = this.showsWaitFrames ? this.profile : this.foldWaits();
    const selection = { ...range, states: this.stateChoice.mask, separateStates: this.sampledStates };
    if (this.isWholeTime() || !this.getRunFilter()) return { profile, selection };
    const timelines = [this.cutTimeline(range)];
    return { profile: { ...profile, timelines }, selection: { ...selection, from: 0, to: 0 } };
  }

  /** Lists the functions of the path from the root to a node of the tree of all stacks, as they are shown. */
  listFunctionsTo(/** @type {number} */ node) {
    const { foldedTree, profile, showsWaitFrames } = this;
    const { placeOf } = foldedTree;
    return placeOf && !showsWaitFrames ? listFunctionsTo(foldedTree, placeOf[node]) : listFunctionsTo(profile.tree, node);
  }

  /** The profile without the frames in which threads wait. */
  foldWaits() {
    return { ...this.profile, tree: this.foldedTree };
  }

  /** The samples of a range as a timeline of one span. Runs are cut at its ends. */
  cutTimeline(/** @type {SpanRange} */ range) {
    const { lanes, timelines } = this.profile;
    const runFilter = this.getRunFilter();
    return runFilter ? cutRuns(required(lanes), runFilter, timelines[0], range) : sliceTimeline(timelines[0], range);
  }

  /** Which runs of the lanes are of the selected event; null if the lanes are of another one. */
  getRunFilter() {
    const { lanes, measurements } = this.profile;
    return lanes?.event === this.eventIndex ? createRunFilter(lanes, measurements[0], this.threadMask) : null;
  }
}

function countSamples(/** @type {Timeline} */ { count }) {
  let samples = 0;
  for (let entry = 0; entry < count.length; entry += 1) samples += count[entry];
  return samples;
}
