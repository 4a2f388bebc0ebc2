// Builds call trees with sample counts: of all stacks, and of the callers and callees of a function.

import { required } from "./required.js";
import { listChildren } from "./tree_items.js";

/** @import { Functions, Profile, StackTree, Timeline } from "./document.js" */
/** @import { Selection } from "./states.js" */

/**
 * Sample counts of one profile, by node or by function.
 * @typedef {object} SampleCounts
 * @property {Float64Array} self samples with this leaf
 * @property {Float64Array} total self samples and the samples of all callees
 */

/**
 * The sample counts of one state of threads.
 * @typedef {SampleCounts & {state: number}} StateCounts
 */

/**
 * A call tree with its nodes in preorder: the subtree of `node` is `node` up to, not including, `end[node]`.
 * @typedef {object} CallTree
 * @property {number} size
 * @property {number} levels
 * @property {Int32Array} function
 * @property {Int32Array} parent -1 for node 0
 * @property {Int32Array} end
 * @property {Int32Array} depth
 * @property {SampleCounts[]} sides the samples of each profile
 * @property {StateCounts[]} states the samples of the states that are counted separately
 * @property {Float64Array} weight the width of each node
 * @property {Float64Array} start the weight to the left of the node
 */

/**
 * Nodes in any order in which a parent precedes its children.
 * @typedef {object} NodeColumns
 * @property {Int32Array} parent
 * @property {Int32Array} function
 * @property {Float64Array[]} counts samples that end at each node, in each profile, then in each of `states`
 * @property {number[]} states the states that are counted separately
 */

/**
 * Compares siblings, the leftmost first.
 * @typedef {(a: number, b: number) => number} Comparator
 * @type {Record<string, (functions: Functions, functionOf: ArrayLike<number>, weights: Float64Array) => Comparator>}
 */
const ORDERS = {
  samples:
    ({ name }, functionOf, weights) =>
    (a, b) =>
      weights[b] - weights[a] || (name[functionOf[a]] < name[functionOf[b]] ? -1 : 1),
  name:
    ({ name }, functionOf) =>
    (a, b) =>
      name[functionOf[a]] < name[functionOf[b]] ? -1 : 1,
};

/**
 * Builds the tree of nodes with samples, with siblings in order.
 * @param {NodeColumns} nodes
 * @param {Functions} functions
 * @param {string} order one of `ORDERS`
 * @param {number[]} sampleWeights the weight of a sample of each profile
 * @returns {CallTree}
 */
export function buildCallTree(nodes, functions, order, sampleWeights) {
  const totals = nodes.counts.map((column) => computeTotals(nodes.parent, column));
  const sideCount = totals.length - nodes.states.length;
  const { sizes, firstChild, nextSibling } = linkNodes(nodes.parent, totals.slice(0, sideCount));
  const weights = computeWeights(totals.slice(0, sideCount), sampleWeights);
  const size = sizes[0];
  /** The node at each place in preorder. */
  const placed = new Int32Array(size);
  const parents = new Int32Array(size);
  const ends = new Int32Array(size);
  const starts = new Float64Array(size);
  const place = (node, at, parent, start) => {
    placed[at] = node;
    parents[at] = parent;
    ends[at] = at + sizes[node];
    starts[at] = start;
  };
  const compare = ORDERS[order](functions, nodes.function, weights);
  place(0, 0, -1, 0);
  // A stack of nodes whose children have no place yet: each node and its own place.
  const pending = [0, 0];
  while (pending.length > 0) {
    const parent = required(pending.pop());
    const first = sortSiblings(nextSibling, firstChild[required(pending.pop())], compare);
    let at = parent + 1;
    let start = starts[parent];
    for (let node = first; node >= 0; node = nextSibling[node]) {
      place(node, at, parent, start);
      if (firstChild[node] >= 0) pending.push(node, at);
      at += sizes[node];
      start += weights[node];
    }
  }
  const depth = computeDepths(parents);
  const columns = totals.map((total, index) => ({
    self: gatherEntries(nodes.counts[index], placed),
    total: gatherEntries(total, placed),
  }));
  return {
    size,
    levels: depth.reduce((one, other) => Math.max(one, other)) + 1,
    function: gatherEntries(nodes.function, placed),
    parent: parents,
    end: ends,
    depth,
    sides: columns.slice(0, sideCount),
    states: nodes.states.map((state, index) => ({ state, ...columns[sideCount + index] })),
    weight: gatherEntries(weights, placed),
    start: starts,
  };
}

/** Computes the distance of each node from the root. A parent precedes its children. */
function computeDepths(/** @type {Int32Array} */ parents) {
  const depth = new Int32Array(parents.length);
  for (let node = 1; node < depth.length; node += 1) depth[node] = depth[parents[node]] + 1;
  return depth;
}

/**
 * Gathers the entries of a column at these indices.
 * @template {Int32Array | Float64Array} Column
 * @param {Column} column
 * @param {Int32Array} places
 * @returns {Column}
 */
export function gatherEntries(column, places) {
  const Type = /** @type {{new (length: number): Column}} */ (column.constructor);
  const found = new Type(places.length);
  for (let at = 0; at < places.length; at += 1) found[at] = column[places[at]];
  return found;
}

/** Computes the weight of each node from its samples in each profile. */
function computeWeights(/** @type {Float64Array[]} */ [first, second], /** @type {number[]} */ [one, other]) {
  if (!second) return first;
  const weights = new Float64Array(first.length);
  for (let node = 0; node < weights.length; node += 1) weights[node] = first[node] * one + second[node] * other;
  return weights;
}

/** Sorts a linked list of nodes, which ends with -1, and returns its first node. */
function sortSiblings(/** @type {Int32Array} */ next, /** @type {number} */ first, compare) {
  if (first < 0 || next[first] < 0) return first;
  const nodes = [];
  for (let node = first; node >= 0; node = next[node]) nodes.push(node);
  nodes.sort(compare);
  nodes.forEach((node, index) => {
    next[node] = nodes[index + 1] ?? -1;
  });
  return nodes[0];
}

/** Links the nodes with samples to their children, and counts the nodes of each subtree. */
function linkNodes(/** @type {ArrayLike<number>} */ parent, /** @type {Float64Array[]} */ [first, second = first]) {
  const size = parent.length;
  const sizes = new Int32Array(size).fill(1);
  const firstChild = new Int32Array(size).fill(-1);
  const nextSibling = new Int32Array(size).fill(-1);
  for (let node = size - 1; node > 0; node -= 1) {
    if (first[node] === 0 && second[node] === 0) continue;
    const parentNode = parent[node];
    sizes[parentNode] += sizes[node];
    nextSibling[node] = firstChild[parentNode];
    firstChild[parentNode] = node;
  }
  return { sizes, firstChild, nextSibling };
}

function computeTotals(/** @type {ArrayLike<number>} */ parent, /** @type {ArrayLike<number>} */ self) {
  const totals = Float64Array.from(self);
  for (let node = parent.length - 1; node > 0; node -= 1) totals[parent[node]] += totals[node];
  return totals;
}

/**
 * Collects the stacks of a time range below one root for each group of threads.
 * @param {Profile} profile
 * @param {Selection} selection
 * @param {Int32Array} roots the root function of each thread, or -1
 * @returns {NodeColumns}
 */
export function collectSelectedStacks({ tree, timelines, functions }, selection, roots) {
  const nodes = new NodeColumnsBuilder(timelines.length, selection.separateStates, tree.parent.length + 1);
  nodes.add(-1, functions.root);
  const copier = new StackCopier(tree, nodes);
  const sides = timelines.map((timeline) => ({ timeline, entries: groupEntriesByRoot(timeline, selection, roots) }));
  for (const root of new Set(sides.flatMap(({ entries }) => [...entries.keys()]))) {
    copier.startRoot(root < 0 ? 0 : nodes.add(0, root));
    sides.forEach(({ timeline, entries }, side) => copier.addSamples(side, timeline, entries.get(root) ?? []));
  }
  return nodes.build();
}

/** Copies the sampled nodes of the tree of all stacks below one root after another. */
class StackCopier {
  constructor(/** @type {StackTree} */ tree, /** @type {NodeColumnsBuilder} */ nodes) {
    this.tree = tree;
    this.nodes = nodes;
    this.copyOf = new Int32Array(tree.parent.length).fill(-1);
    /** The nodes that were copied below the current root, each after its parent. */
    this.copied = new Int32Array(tree.parent.length);
    this.size = 0;
  }

  startRoot(/** @type {number} */ root) {
    for (let index = 0; index < this.size; index += 1) this.copyOf[this.copied[index]] = -1;
    this.copyOf[0] = root;
    this.size = 0;
  }

  /** Adds the samples of a profile, and copies nodes that the current root does not have yet. */
  addSamples(/** @type {number} */ side, /** @type {Timeline} */ timeline, /** @type {ArrayLike<number>} */ entries) {
    const { nodes, copyOf } = this;
    const { placeOf } = this.tree;
    for (let index = 0; index < entries.length; index += 1) {
      const entry = entries[index];
      const node = placeOf ? placeOf[timeline.node[entry]] : timeline.node[entry];
      if (copyOf[node] < 0) this.copyPath(node);
      nodes.counts[side][copyOf[node]] += timeline.count[entry];
      const stateColumn = nodes.columnOfState[timeline.state[entry]];
      if (stateColumn !== undefined) nodes.counts[stateColumn][copyOf[node]] += timeline.count[entry];
    }
  }

  copyPath(/** @type {number} */ end) {
    const { tree, nodes, copyOf, copied } = this;
    const first = this.size;
    for (let node = end; copyOf[node] < 0; node = tree.parent[node]) copied[this.size++] = node;
    copied.subarray(first, this.size).reverse();
    for (let index = first; index < this.size; index += 1) {
      const node = copied[index];
      copyOf[node] = nodes.add(copyOf[tree.parent[node]], tree.function[node]);
    }
  }
}

/**
 * @param {Timeline} timeline
 * @param {Selection} selection
 * @param {Int32Array} roots
 * @returns {Map<number, Uint32Array>} the timeline entries of each root that has entries
 */
function groupEntriesByRoot(timeline, selection, roots) {
  const entries = listSelectedEntries(timeline, selection);
  const groups = new Map(Array.from(new Set(roots), (root, group) => [root, group]));
  const groupOf = Uint32Array.from(roots, (root) => required(groups.get(root)));
  // Counting sort: the start of each group, and the place of its next entry.
  const starts = new Uint32Array(groups.size + 1);
  for (const entry of entries) starts[groupOf[timeline.thread[entry]] + 1] += 1;
  for (let group = 0; group < groups.size; group += 1) starts[group + 1] += starts[group];
  const next = starts.slice();
  const sorted = new Uint32Array(entries.length);
  for (const entry of entries) sorted[next[groupOf[timeline.thread[entry]]]++] = entry;
  /** @type {Map<number, Uint32Array>} */
  const found = new Map();
  for (const [root, group] of groups) {
    if (starts[group] < starts[group + 1]) found.set(root, sorted.subarray(starts[group], starts[group + 1]));
  }
  return found;
}

/** @returns {Uint32Array} the entries of the selected spans and states */
function listSelectedEntries(/** @type {Timeline} */ timeline, /** @type {Selection} */ { from, to, states }) {
  const [first, end] = [timeline.start[from], timeline.start[to + 1]];
  const entries = new Uint32Array(end - first);
  let size = 0;
  for (let entry = first; entry < end; entry += 1) {
    if (states === null || states[timeline.state[entry]]) entries[size++] = entry;
  }
  return entries.subarray(0, size);
}

class NodeColumnsBuilder {
  /**
   * @param {number} sides the number of profiles
   * @param {number[]} states the states that are counted separately
   * @param {number} capacity
   */
  constructor(sides, states, capacity = 1024) {
    this.size = 0;
    this.states = states;
    /** The column of each separate state, by the state. @type {number[]} */
    this.columnOfState = [];
    states.forEach((state, index) => (this.columnOfState[state] = sides + index));
    this.parent = new Int32Array(capacity);
    this.function = new Int32Array(capacity);
    this.counts = Array.from({ length: sides + states.length }, () => new Float64Array(capacity));
  }

  add(parent, functionIndex) {
    if (this.size === this.parent.length) this.grow();
    this.parent[this.size] = parent;
    this.function[this.size] = functionIndex;
    this.size += 1;
    return this.size - 1;
  }

  grow() {
    const double = (column) => {
      const grown = new column.constructor(2 * this.size);
      grown.set(column);
      return grown;
    };
    this.parent = double(this.parent);
    this.function = double(this.function);
    this.counts = this.counts.map(double);
  }

  /** @returns {NodeColumns} */
  build() {
    const { size } = this;
    return {
      parent: this.parent.subarray(0, size),
      function: this.function.subarray(0, size),
      counts: this.counts.map((column) => column.subarray(0, size)),
      states: this.states,
    };
  }
}

/** Calls `visit` for each node of a function that has no ancestor of the same function. */
function forEachOutermostCall(
  /** @type {CallTree} */ tree,
  functionIndex,
  /** @type {(node: number) => void} */ visit,
) {
  for (let node = 0; node < tree.size; ) {
    if (tree.function[node] === functionIndex) {
      visit(node);
      node = tree.end[node];
    } else {
      node += 1;
    }
  }
}

/** Merges paths into a tree: a parent has one child for each function. */
class TreeMerger {
  /**
   * @param {number} root
   * @param {number} functionCount
   * @param {CallTree} tree the tree of the paths
   */
  constructor(root, functionCount, { sides, states }) {
    this.nodes = new NodeColumnsBuilder(sides.length, states.map(({ state }) => state));
    this.nodes.add(-1, root);
    this.functionCount = functionCount;
    /** @type {Map<number, number>} */
    this.known = new Map();
  }

  findOrAdd(parent, functionIndex) {
    const key = parent * this.functionCount + functionIndex;
    let node = this.known.get(key);
    if (node === undefined) {
      node = this.nodes.add(parent, functionIndex);
      this.known.set(key, node);
    }
    return node;
  }

  /** Adds the counts of a node of the tree of the paths. */
  addCounts(/** @type {number} */ target, /** @type {Float64Array[]} */ columns, /** @type {number} */ node) {
    for (let column = 0; column < columns.length; column += 1) this.nodes.counts[column][target] += columns[column][node];
  }
}

/** Lists the counts of a tree: in each profile, then in each separate state. */
function listCountColumns(/** @type {CallTree} */ { sides, states }, /** @type {"self" | "total"} */ key) {
  return [...sides, ...states].map((counts) => counts[key]);
}

/**
 * Merges the subtrees of a function's outermost calls into one tree of callees.
 * @returns {NodeColumns}
 */
export function mergeCallees(/** @type {CallTree} */ tree, functionIndex, functionCount) {
  const merged = new TreeMerger(functionIndex, functionCount, tree);
  const selves = listCountColumns(tree, "self");
  forEachOutermostCall(tree, functionIndex, (top) => {
    const mergedNode = new Int32Array(tree.end[top] - top);
    for (let node = top; node < tree.end[top]; node += 1) {
      const target = node === top ? 0 : merged.findOrAdd(mergedNode[tree.parent[node] - top], tree.function[node]);
      mergedNode[node - top] = target;
      merged.addCounts(target, selves, node);
    }
  });
  return merged.nodes.build();
}

/**
 * Merges the paths from a function's outermost calls to the root into one tree of callers.
 * @returns {NodeColumns}
 */
export function mergeCallers(/** @type {CallTree} */ tree, functionIndex, functionCount) {
  const merged = new TreeMerger(functionIndex, functionCount, tree);
  const totals = listCountColumns(tree, "total");
  forEachOutermostCall(tree, functionIndex, (top) => {
    let target = 0;
    for (let node = tree.parent[top]; node > 0; node = tree.parent[node]) {
      target = merged.findOrAdd(target, tree.function[node]);
    }
    merged.addCounts(target, totals, top);
  });
  return merged.nodes.build();
}

/** Follows a path of functions from the root to the last node that the tree contains. */
export function followPath(/** @type {CallTree} */ tree, /** @type {number[]} */ path) {
  let node = 0;
  for (const functionIndex of path.slice(1)) {
    const below = [...listChildren(tree, node)].find((child) => tree.function[child] === functionIndex);
    if (below === undefined) break;
    node = below;
  }
  return node;
}

/** Finds the node itself or its nearest ancestor that has a width. */
export function findVisibleAncestor(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  let visible = node;
  while (visible > 0 && tree.weight[visible] === 0) visible = tree.parent[visible];
  return visible;
}

/** Returns the samples of a subtree in each profile. */
export function getTotals(/** @type {CallTree} */ tree, /** @type {number} */ node) {
  return tree.sides.map(({ total }) => total[node]);
}
