// The tabs of the page and the legend of each.

import { getElement } from "./elements.js";
import { createEventLegend } from "./runtime_events.js";
import { createStateLegend, listLaneStates } from "./states.js";

/** @import { Presenter } from "./shares.js" */
/** @import { ShownSamples } from "./shown_samples.js" */

/** The tabs, and the id of the element that gets the focus in each. */
const FOCUS_TARGETS = { flame: "flame", sandwich: "callees", lanes: "lanes", events: "event-rows", ledger: "view-ledger" };

export const TABS = Object.keys(FOCUS_TARGETS);

/** Shows a tab and hides the other ones. */
export function showTab(/** @type {string} */ shown) {
  for (const tab of TABS) {
    getElement(`tab-${tab}`).setAttribute("aria-selected", String(tab === shown));
    getElement(`view-${tab}`).hidden = tab !== shown;
  }
  getElement("breadcrumbs").hidden = shown !== "flame";
  getElement("middle").hidden = shown !== "sandwich";
  getElement("details").hidden = shown === "lanes" || shown === "events";
}

export function focusTab(/** @type {string} */ tab) {
  getElement(FOCUS_TARGETS[tab]).focus();
}

/** Shows the legend of a tab. */
export function showLegend(
  /** @type {string} */ tab,
  /** @type {ShownSamples} */ { profile, sampledStates },
  /** @type {Presenter} */ presenter,
) {
  const eventLegend = profile.runtimeEvents ? createEventLegend(profile.runtimeEvents) : [];
  const createBoxLegend = () => presenter.createLegend(sampledStates.map((state) => profile.states[state]));
  const legends = {
    lanes: () => [...createStateLegend(listLaneStates(profile)), ...eventLegend],
    events: () => eventLegend,
  };
  getElement("legend").replaceChildren(...(legends[tab] ?? createBoxLegend)());
}
