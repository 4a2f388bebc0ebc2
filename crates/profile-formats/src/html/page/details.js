// What is known of one box: its samples, where its code is from, and how it got its name.

/**
 * @typedef {object} Box
 * @property {CallTree} tree
 * @property {number} node
 * @property {number} zoomed
 * @property {number[]} all the samples of the whole graph, in each profile
 */

function showDetails(/** @type {HTMLElement} */ holder, /** @type {Reading} */ reading, /** @type {Box | null} */ box) {
  if (!box) {
    const hint = "Point at a box, or walk with the arrow keys; Enter zooms, s shows callers and callees, ? all keys.";
    holder.replaceChildren(element("p", { class: "hint" }, hint));
    return;
  }
  const which = box.tree.function[box.node];
  const { name, kind, module, place, symbolization } = reading.functions;
  const origin = [KINDS[kind[which]] ?? "", module[which], place[which], symbolization[which]].filter((text) => text !== "");
  holder.replaceChildren(
    element("p", { class: "title" }, nameElement(name[which])),
    ...reading.counted(box).map((line) => element("p", {}, ...line)),
    element("p", { class: "origin" }, ...separated(origin.map(nameElement))),
  );
}

function separated(/** @type {(Node | string)[]} */ parts) {
  return parts.flatMap((part, index) => (index === 0 ? [part] : [" · ", part]));
}
