// Accessible tree items for screen readers: the focused node with its ancestors, siblings and children.

import { createElement } from "./elements.js";

/** @import { CallTree } from "./call_tree.js" */

/** The maximum number of siblings, and of children, that get an item. */
const MAX_ITEMS = 100;

export class TreeItems {
  /** The number of instances, which makes the ids of their items unique. */
  static instances = 0;

  constructor(/** @type {(tree: CallTree, node: number) => string} */ describeBox) {
    this.describeBox = describeBox;
    this.holder = createElement("div", { class: "hidden", role: "group" });
    TreeItems.instances += 1;
    this.prefix = `item-${TreeItems.instances}`;
  }

  /** @returns {string} the id of the focused node's element */
  show(/** @type {CallTree} */ tree, /** @type {number} */ focused) {
    const above = listAncestors(tree, focused);
    const beside = focused === 0 ? [0] : selectAround([...listChildren(tree, tree.parent[focused])], focused);
    const below = [...listChildren(tree, focused)].slice(0, MAX_ITEMS);
    const upTo = beside.indexOf(focused) + 1;
    const nodes = [...above, ...beside.slice(0, upTo), ...below, ...beside.slice(upTo)];
    this.holder.replaceChildren(...nodes.map((node) => this.createItem(tree, node, focused)));
    return this.createId(focused);
  }

  createItem(tree, node, focused) {
    const attributes = {
      role: "treeitem",
      id: this.createId(node),
      "aria-level": tree.depth[node] + 1,
      "aria-selected": String(node === focused),
    };
    if (tree.end[node] > node + 1) attributes["aria-expanded"] = String(tree.depth[node] <= tree.depth[focused]);
    return createElement("div", attributes, this.describeBox(tree, node));
  }

  createId(node) {
    return `${this.prefix}-${node}`;
  }
}

/** Selects at most `MAX_ITEMS` of `nodes` around `focused`. */
function selectAround(/** @type {number[]} */ nodes, /** @type {number} */ focused) {
  const first = Math.max(0, nodes.indexOf(focused) - MAX_ITEMS / 2);
  return nodes.slice(first, first + MAX_ITEMS);
}

/** Lists the children of a node from left to right. */
export function* listChildren(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  for (let child = node + 1; child < tree.end[node]; child = tree.end[child]) yield child;
}

/** Lists the ancestors of a node, root first. */
export function listAncestors(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  const path = [];
  for (let above = tree.parent[node]; above >= 0; above = tree.parent[above]) path.push(above);
  return path.reverse();
}
