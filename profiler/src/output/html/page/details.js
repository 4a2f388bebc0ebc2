// What is known of one box: its share of the samples, where its code is from, and how it got its name.

/**
 * @param {HTMLElement} holder
 * @param {Functions} functions
 * @param {FittingNames} names
 * @param {{tree: CallTree, node: number, zoomed: number, all: number} | null} box
 */
function showDetails(holder, functions, names, box) {
  if (!box) {
    const hint = "Point at a box, or walk with the arrow keys; Enter zooms, s shows callers and callees, ? all keys.";
    holder.replaceChildren(element("p", { class: "hint" }, hint));
    return;
  }
  const which = box.tree.function[box.node];
  const { name, kind, module, place, naming } = functions;
  const origin = [KINDS[kind[which]] ?? "", module[which], place[which], naming[which]].filter((text) => text !== "");
  holder.replaceChildren(
    element("p", { class: "title" }, nameElement(name[which])),
    element("p", {}, ...countElements(names, box)),
    element("p", { class: "origin" }, ...separated(origin.map(nameElement))),
  );
}

function countElements(/** @type {FittingNames} */ names, { tree, node, zoomed, all }) {
  const [total, self] = [tree.total[node], tree.self[node]];
  /** @type {(Node | string)[]} */
  const shares = [`${percentText(total, all)} of all`];
  if (tree.total[zoomed] !== all) {
    const above = nameElement(names.fitting(tree.function[zoomed], STEP_COLUMNS));
    shares.push(element("span", {}, `${percentText(total, tree.total[zoomed])} of `, above));
  }
  return separated([
    element("strong", {}, sampleText(total)),
    ...shares,
    `self ${NUMBER.format(self)} (${percentText(self, all)})`,
  ]);
}

function separated(/** @type {(Node | string)[]} */ parts) {
  return parts.flatMap((part, index) => (index === 0 ? [part] : [" · ", part]));
}

/** The same in one sentence, for a screen reader. */
function describeBox(/** @type {Functions} */ functions, /** @type {CallTree} */ tree, node) {
  const which = tree.function[node];
  const shares = `${percentText(tree.total[node], tree.total[0])}, self ${percentText(tree.self[node], tree.total[0])}`;
  return [functions.name[which], shares, KINDS[functions.kind[which]]].filter(Boolean).join(", ");
}
