// Shows the details of a box: samples, kind of code, module, source line, and the source of its symbol.

import { KINDS } from "./colours.js";
import { createElement, createNameElement } from "./elements.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { Presenter } from "./shares.js" */

/**
 * @typedef {object} Box
 * @property {CallTree} tree
 * @property {number} node
 * @property {number} zoomed the node that the graph is zoomed to
 * @property {number[]} totals the samples of the whole graph in each profile
 */

export function showDetails(
  /** @type {HTMLElement} */ holder,
  /** @type {Presenter} */ presenter,
  /** @type {Box | null} */ box,
) {
  if (!box) {
    const hint =
      "Point at a box, or move with the arrow keys; Enter zooms, s shows callers and callees, ? shows all keys.";
    holder.replaceChildren(createElement("p", { class: "hint" }, hint));
    return;
  }
  const functionIndex = box.tree.function[box.node];
  const { name, kind, module, place, symbolization } = presenter.functions;
  const origin = [
    KINDS[kind[functionIndex]] ?? "",
    module[functionIndex],
    place[functionIndex],
    symbolization[functionIndex],
  ].filter((text) => text !== "");
  holder.replaceChildren(
    createElement("p", { class: "title", title: name[functionIndex] }, createNameElement(name[functionIndex])),
    ...presenter.createDetails(box).map((line) => createElement("p", {}, ...line)),
    createElement("p", { class: "origin", title: origin.join(" · ") }, ...joinWithSeparators(origin.map(createNameElement))),
  );
}

export function joinWithSeparators(/** @type {(Node | string)[]} */ parts) {
  return parts.flatMap((part, index) => (index === 0 ? [part] : [" · ", part]));
}
