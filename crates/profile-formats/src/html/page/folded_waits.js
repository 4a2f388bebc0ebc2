// Folds the frames in which threads wait: the box with the cause of a wait is a leaf, and only wakers are below it.

/** @import { Functions, StackTree } from "./document.js" */

/** Whether frames of waits can be folded. */
export function hasWaitFrames(/** @type {Functions} */ { kind }) {
  return kind.includes("wait");
}

/**
 * Returns the tree in which the frames below the cause of a wait are the node of the cause. `placeOf` has the place of each node. The
 * stacks of wakers, which begin with a label, are below the cause.
 * @param {StackTree} tree
 * @param {Functions} functions
 * @returns {StackTree}
 */
export function foldWaits(tree, { kind, isLabel }) {
  const size = tree.parent.length;
  const placeOf = new Int32Array(size);
  /** The node of the cause whose wait each node is in, or -1. */
  const waitOf = new Int32Array(size).fill(-1);
  const isOfWaker = new Uint8Array(size);
  const added = new AddedNodes(tree);
  for (let node = 1; node < size; node += 1) {
    const parent = tree.parent[node];
    const functionIndex = tree.function[node];
    waitOf[node] = waitOf[parent];
    isOfWaker[node] = isOfWaker[parent] | isLabel[functionIndex];
    if (waitOf[node] < 0) {
      placeOf[node] = node;
      if (kind[functionIndex] === "wait") waitOf[node] = node;
    } else {
      placeOf[node] = isOfWaker[node] ? added.findOrAdd(placeOf[parent], functionIndex) : waitOf[node];
    }
  }
  return { ...added.build(), placeOf };
}

/** The name of the function in which a thread is: of a path, root first, the one above the cause of its wait, else the last one. */
export function nameWaitingFunction(/** @type {Functions} */ { kind, name }, /** @type {number[]} */ path) {
  const wait = path.findIndex((index) => kind[index] === "wait");
  const place = path[(wait < 0 ? path.length : wait) - 1];
  return place === undefined ? "no function" : name[place];
}

/** Nodes that are added to a tree: a parent has one added child for each function. */
class AddedNodes {
  constructor(/** @type {StackTree} */ { parent, function: functionOf }) {
    this.size = parent.length;
    this.parent = [...parent];
    this.function = [...functionOf];
    /** @type {Map<string, number>} */
    this.known = new Map();
  }

  findOrAdd(/** @type {number} */ parent, /** @type {number} */ functionIndex) {
    const key = `${parent} ${functionIndex}`;
    let node = this.known.get(key);
    if (node === undefined) {
      node = this.parent.push(parent) - 1;
      this.function.push(functionIndex);
      this.known.set(key, node);
    }
    return node;
  }

  build() {
    return { parent: Int32Array.from(this.parent), function: Int32Array.from(this.function) };
  }
}
