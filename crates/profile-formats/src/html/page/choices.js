// The choices above the graphs: which event and which states are shown.

import { announce, createElement, getElement } from "./elements.js";

/** @import { ShownSamples } from "./shown_samples.js" */

export function fillEventChoice(/** @type {ShownSamples} */ { profile: { events }, eventIndex }) {
  const createOption = ({ measurements }, index) => createElement("option", { value: index }, measurements[0].event);
  getElement("event").replaceChildren(...events.map(createOption));
  getElement("event").selectedIndex = eventIndex;
  getElement("event").parentElement.hidden = events.length === 1;
}

/** Offers the states of the selected event's samples. */
export function fillStateChoice(/** @type {ShownSamples} */ { stateChoices }) {
  const createOption = ({ name }) => createElement("option", { value: name }, name);
  getElement("state").replaceChildren(...stateChoices.map(createOption));
  for (const id of ["state", "colouring"]) getElement(id).parentElement.hidden = stateChoices.length === 1;
}

/** Selects the next option of a choice, if the page offers it. */
export function selectNext(/** @type {string} */ id) {
  const select = getElement(id);
  if (select.parentElement.hidden) return;
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  announce(`${select.labels[0].firstChild.textContent.trim()}: ${select.selectedOptions[0].textContent}`);
  select.dispatchEvent(new Event("change"));
}
