// What a screen reader reads of a call tree: the focused node, the way to it, and what is beside and below it.

/** More siblings or children than this are not read out one by one. */
const MOST_ITEMS = 100;

class TreeItems {
  /** How many there are, so that no two have the same ids. */
  static made = 0;

  constructor(/** @type {(tree: CallTree, node: number) => string} */ describe) {
    this.describe = describe;
    this.holder = element("div", { class: "hidden", role: "group" });
    TreeItems.made += 1;
    this.prefix = `item-${TreeItems.made}`;
  }

  /** @returns {string} the id of the focused node's element */
  show(/** @type {CallTree} */ tree, /** @type {number} */ focused) {
    const above = pathTo(tree, focused);
    const beside = focused === 0 ? [0] : around([...childrenOf(tree, tree.parent[focused])], focused);
    const below = [...childrenOf(tree, focused)].slice(0, MOST_ITEMS);
    const upTo = beside.indexOf(focused) + 1;
    const nodes = [...above, ...beside.slice(0, upTo), ...below, ...beside.slice(upTo)];
    this.holder.replaceChildren(...nodes.map((node) => this.item(tree, node, focused)));
    return this.id(focused);
  }

  item(tree, node, focused) {
    const attributes = {
      role: "treeitem",
      id: this.id(node),
      "aria-level": tree.depth[node] + 1,
      "aria-selected": String(node === focused),
    };
    if (tree.end[node] > node + 1) attributes["aria-expanded"] = String(tree.depth[node] <= tree.depth[focused]);
    return element("div", attributes, this.describe(tree, node));
  }

  id(node) {
    return `${this.prefix}-${node}`;
  }
}

/** As many of `nodes` as are read out, with `focused` among them. */
function around(/** @type {number[]} */ nodes, /** @type {number} */ focused) {
  const first = Math.max(0, nodes.indexOf(focused) - MOST_ITEMS / 2);
  return nodes.slice(first, first + MOST_ITEMS);
}

/** The children of a node, from left to right. */
function* childrenOf(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  for (let child = node + 1; child < tree.end[node]; child = tree.end[child]) yield child;
}

/** The nodes above a node, the root first. */
function pathTo(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  const path = [];
  for (let above = tree.parent[node]; above >= 0; above = tree.parent[above]) path.push(above);
  return path.reverse();
}
