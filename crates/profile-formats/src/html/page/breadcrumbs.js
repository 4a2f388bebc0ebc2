// The way from the root to the zoomed box; each step of it zooms there.

/** Of a long way the first and the last steps are shown. */
const STEPS_SHOWN = { first: 1, last: 3 };

/**
 * @param {HTMLElement} holder
 * @param {CallTree} tree
 * @param {number} zoomed
 * @param {FittingNames} names
 * @param {(node: number) => void} onZoom
 */
function showBreadcrumbs(holder, tree, zoomed, names, onZoom) {
  const path = [...pathTo(tree, zoomed), zoomed];
  const { first, last } = STEPS_SHOWN;
  const hidden = path.slice(first, -last);
  const step = (node) => {
    const attributes = { type: "button", onclick: () => onZoom(node) };
    if (node === zoomed) attributes["aria-current"] = "location";
    const name = names.fitting(tree.function[node], STEP_COLUMNS);
    return element("li", {}, element("button", attributes, nameElement(name)));
  };
  const gap = element("li", { class: "gap" }, `… ${hidden.length} more`);
  const shown = hidden.length > 0 ? [...path.slice(0, first).map(step), gap, ...path.slice(-last).map(step)] : path.map(step);
  holder.replaceChildren(element("ol", {}, ...shown));
}

/** A step's name has this much room. */
const STEP_COLUMNS = 24;
