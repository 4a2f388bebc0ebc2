// Shows the path from the root to the zoomed box as buttons that zoom to its boxes.

import { createElement, createNameElement } from "./elements.js";
import { listAncestors } from "./tree_items.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { NameShortener } from "./names.js" */

/** The numbers of steps at the start and at the end of a long path that are shown. */
const SHOWN_STEPS = { first: 1, last: 3 };

/**
 * @param {HTMLElement} holder
 * @param {CallTree} tree
 * @param {number} zoomed
 * @param {NameShortener} names
 * @param {(node: number) => void} onZoom
 */
export function showBreadcrumbs(holder, tree, zoomed, names, onZoom) {
  const path = [...listAncestors(tree, zoomed), zoomed];
  const { first, last } = SHOWN_STEPS;
  const hidden = path.slice(first, -last);
  const createStep = (node) => {
    const attributes = { type: "button", onclick: () => onZoom(node) };
    if (node === zoomed) attributes["aria-current"] = "location";
    const name = names.shorten(tree.function[node], MAX_STEP_LENGTH);
    return createElement("li", {}, createElement("button", attributes, createNameElement(name)));
  };
  const gap = createElement("li", { class: "gap" }, `… ${hidden.length} more`);
  const shown =
    hidden.length > 0
      ? [...path.slice(0, first).map(createStep), gap, ...path.slice(-last).map(createStep)]
      : path.map(createStep);
  holder.replaceChildren(createElement("ol", {}, ...shown));
}

/** The maximum number of characters of a step's name. */
export const MAX_STEP_LENGTH = 24;
