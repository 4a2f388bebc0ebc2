// Call trees: which function called which, and how many samples each call has.

/**
 * Samples in one of the profiles, by node or by function.
 * @typedef {object} Counts
 * @property {Float64Array} self samples that end here
 * @property {Float64Array} total with those of what was called
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
 * @property {Counts[]} sides the samples of each profile
 * @property {Float64Array} weight how wide a node is
 * @property {Float64Array} start the weight to the left of the node
 */

/**
 * Nodes in any order in which a parent stands before its children.
 * @typedef {object} Nodes
 * @property {ArrayLike<number>} parent
 * @property {ArrayLike<number>} function
 * @property {ArrayLike<number>[]} counts samples that end at each node, in each profile
 */

/**
 * Which of two nodes stands further left.
 * @type {Record<string, (functions: Functions, which: ArrayLike<number>, weights: Float64Array) => (a: number, b: number) => number>}
 */
const ORDERS = {
  samples: ({ name }, which, weights) => (a, b) => weights[b] - weights[a] || (name[which[a]] < name[which[b]] ? -1 : 1),
  name: ({ name }, which) => (a, b) => (name[which[a]] < name[which[b]] ? -1 : 1),
};

/**
 * The tree of these nodes, siblings in order. Nodes without samples are left out.
 * @param {Nodes} nodes
 * @param {Functions} functions
 * @param {string} order one of `ORDERS`
 * @param {number[]} factors what a sample of each profile weighs
 * @returns {CallTree}
 */
function callTree(nodes, functions, order, factors) {
  const { totals, sizes, firstChild, nextSibling } = linkedNodes(nodes);
  const weights = weighted(totals, factors);
  const size = sizes[0];
  /** Which of the nodes has each place. */
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
  // Nodes whose children have no place yet, each before its own place.
  const open = [0, 0];
  while (open.length > 0) {
    const parent = open.pop();
    const first = sortSiblings(nextSibling, firstChild[open.pop()], compare);
    let at = parent + 1;
    let start = starts[parent];
    for (let node = first; node >= 0; node = nextSibling[node]) {
      place(node, at, parent, start);
      if (firstChild[node] >= 0) open.push(node, at);
      at += sizes[node];
      start += weights[node];
    }
  }
  const depth = depths(parents);
  return {
    size,
    levels: depth.reduce((one, other) => Math.max(one, other)) + 1,
    function: gathered(nodes.function, placed),
    parent: parents,
    end: ends,
    depth,
    sides: totals.map((total, side) => ({ self: gathered(nodes.counts[side], placed), total: gathered(total, placed) })),
    weight: gathered(weights, placed),
    start: starts,
  };
}

/** How far from the root each node is; a parent stands before its children. */
function depths(/** @type {Int32Array} */ parents) {
  const depth = new Int32Array(parents.length);
  for (let node = 1; node < depth.length; node += 1) depth[node] = depth[parents[node]] + 1;
  return depth;
}

/**
 * The entries of a column that stand at these places.
 * @template {Int32Array | Float64Array} Column
 * @param {Column} column
 * @param {Int32Array} places
 * @returns {Column}
 */
function gathered(column, places) {
  const found = new column.constructor(places.length);
  for (let at = 0; at < places.length; at += 1) found[at] = column[places[at]];
  return found;
}

/** What nodes weigh, by their samples in each profile. */
function weighted(/** @type {Float64Array[]} */ [first, second], /** @type {number[]} */ [one, other]) {
  if (!second) return first;
  const weights = new Float64Array(first.length);
  for (let node = 0; node < weights.length; node += 1) weights[node] = first[node] * one + second[node] * other;
  return weights;
}

/** Links the nodes of a list, which ends with -1, in order; returns the first. */
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

/** The nodes that have samples, linked from parent to children, with what is in their subtrees. */
function linkedNodes(/** @type {Nodes} */ { parent, counts }) {
  const size = parent.length;
  const totals = counts.map((column) => subtreeTotals(parent, column));
  const [first, second = first] = totals;
  const sizes = new Int32Array(size).fill(1);
  const firstChild = new Int32Array(size).fill(-1);
  const nextSibling = new Int32Array(size).fill(-1);
  for (let node = size - 1; node > 0; node -= 1) {
    if (first[node] === 0 && second[node] === 0) continue;
    const above = parent[node];
    sizes[above] += sizes[node];
    nextSibling[node] = firstChild[above];
    firstChild[above] = node;
  }
  return { totals, sizes, firstChild, nextSibling };
}

function subtreeTotals(/** @type {ArrayLike<number>} */ parent, /** @type {ArrayLike<number>} */ self) {
  const totals = Float64Array.from(self);
  for (let node = parent.length - 1; node > 0; node -= 1) totals[parent[node]] += totals[node];
  return totals;
}

/**
 * The samples of some spans of time, as nodes below one root for each of `roots`.
 * @param {Profile} profile
 * @param {{from: number, to: number}} range spans, the last one included
 * @param {Int32Array} roots each thread's root, or -1
 * @returns {Nodes}
 */
function selectedNodes({ tree, timelines, functions }, range, roots) {
  const nodes = new GrowingNodes(timelines.length, tree.parent.length + 1);
  nodes.add(-1, functions.root);
  const placing = new Placing(tree, nodes);
  const sides = timelines.map((timeline) => ({ timeline, entries: entriesByRoot(timeline, range, roots) }));
  for (const root of new Set(sides.flatMap(({ entries }) => [...entries.keys()]))) {
    placing.begin(root < 0 ? 0 : nodes.add(0, root));
    sides.forEach(({ timeline, entries }, side) => placing.add(side, timeline, entries.get(root) ?? []));
  }
  return nodes.finished();
}

/** Copies nodes of the tree of all stacks below one root after the other. */
class Placing {
  constructor(tree, /** @type {GrowingNodes} */ nodes) {
    this.tree = tree;
    this.nodes = nodes;
    this.placed = new Int32Array(tree.parent.length).fill(-1);
    /** Nodes that have a place below this root, each after its parent. */
    this.touched = new Int32Array(tree.parent.length);
    this.size = 0;
  }

  begin(/** @type {number} */ root) {
    for (let index = 0; index < this.size; index += 1) this.placed[this.touched[index]] = -1;
    this.placed[0] = root;
    this.size = 0;
  }

  /** Adds samples of a profile, whose nodes take their places now if they have none. */
  add(/** @type {number} */ side, /** @type {Timeline} */ timeline, /** @type {ArrayLike<number>} */ entries) {
    const { nodes, placed } = this;
    for (let index = 0; index < entries.length; index += 1) {
      const node = timeline.node[entries[index]];
      if (placed[node] < 0) this.place(node);
      nodes.counts[side][placed[node]] += timeline.count[entries[index]];
    }
  }

  place(/** @type {number} */ end) {
    const { tree, nodes, placed, touched } = this;
    const first = this.size;
    for (let node = end; placed[node] < 0; node = tree.parent[node]) touched[this.size++] = node;
    touched.subarray(first, this.size).reverse();
    for (let index = first; index < this.size; index += 1) {
      const node = touched[index];
      placed[node] = nodes.add(placed[tree.parent[node]], tree.function[node]);
    }
  }
}

/** @returns {Map<number, Uint32Array>} the entries of each root that has some */
function entriesByRoot(/** @type {Timeline} */ timeline, { from, to }, /** @type {Int32Array} */ roots) {
  const [first, end] = [timeline.start[from], timeline.start[to + 1]];
  const groups = new Map(Array.from(new Set(roots), (root, group) => [root, group]));
  const groupOf = Uint32Array.from(roots, (root) => groups.get(root));
  // Where each group begins, and where its next entry goes.
  const starts = new Uint32Array(groups.size + 1);
  for (let entry = first; entry < end; entry += 1) starts[groupOf[timeline.thread[entry]] + 1] += 1;
  for (let group = 0; group < groups.size; group += 1) starts[group + 1] += starts[group];
  const next = starts.slice();
  const sorted = new Uint32Array(end - first);
  for (let entry = first; entry < end; entry += 1) sorted[next[groupOf[timeline.thread[entry]]]++] = entry;
  const found = Array.from(groups, ([root, group]) => [root, sorted.subarray(starts[group], starts[group + 1])]);
  return new Map(found.filter(([, entries]) => entries.length > 0));
}

/** Nodes that are added one by one. */
class GrowingNodes {
  constructor(/** @type {number} */ sides, room = 1024) {
    this.size = 0;
    this.parent = new Int32Array(room);
    this.function = new Int32Array(room);
    this.counts = Array.from({ length: sides }, () => new Float64Array(room));
  }

  add(parent, which) {
    if (this.size === this.parent.length) this.grow();
    this.parent[this.size] = parent;
    this.function[this.size] = which;
    this.size += 1;
    return this.size - 1;
  }

  grow() {
    const twice = (column) => {
      const grown = new column.constructor(2 * this.size);
      grown.set(column);
      return grown;
    };
    this.parent = twice(this.parent);
    this.function = twice(this.function);
    this.counts = this.counts.map(twice);
  }

  /** @returns {Nodes} */
  finished() {
    const { size } = this;
    return {
      parent: this.parent.subarray(0, size),
      function: this.function.subarray(0, size),
      counts: this.counts.map((column) => column.subarray(0, size)),
    };
  }
}

/** Calls `visit` for each node of a function that is not below another node of the same function. */
function eachOutermost(/** @type {CallTree} */ tree, which, /** @type {(node: number) => void} */ visit) {
  for (let node = 0; node < tree.size; ) {
    if (tree.function[node] === which) {
      visit(node);
      node = tree.end[node];
    } else {
      node += 1;
    }
  }
}

/** Nodes that are found by their parent and function, and added when they are not there. */
class MergedNodes {
  constructor(root, functionCount, sides) {
    this.nodes = new GrowingNodes(sides);
    this.nodes.add(-1, root);
    this.functionCount = functionCount;
    /** @type {Map<number, number>} */
    this.known = new Map();
  }

  child(parent, which) {
    const key = parent * this.functionCount + which;
    let node = this.known.get(key);
    if (node === undefined) {
      node = this.nodes.add(parent, which);
      this.known.set(key, node);
    }
    return node;
  }

  /** Adds at a node what another one has in each profile. */
  count(/** @type {number} */ here, /** @type {Float64Array[]} */ columns, /** @type {number} */ node) {
    for (let side = 0; side < columns.length; side += 1) this.nodes.counts[side][here] += columns[side][node];
  }
}

/**
 * What a function called: everything below its outermost calls, as one tree.
 * @returns {Nodes}
 */
function calleeNodes(/** @type {CallTree} */ tree, which, functionCount) {
  const merged = new MergedNodes(which, functionCount, tree.sides.length);
  const selves = tree.sides.map(({ self }) => self);
  eachOutermost(tree, which, (top) => {
    const placed = new Int32Array(tree.end[top] - top);
    for (let node = top; node < tree.end[top]; node += 1) {
      const here = node === top ? 0 : merged.child(placed[tree.parent[node] - top], tree.function[node]);
      placed[node - top] = here;
      merged.count(here, selves, node);
    }
  });
  return merged.nodes.finished();
}

/**
 * Who called a function: the way from its outermost calls to the root, as one tree.
 * @returns {Nodes}
 */
function callerNodes(/** @type {CallTree} */ tree, which, functionCount) {
  const merged = new MergedNodes(which, functionCount, tree.sides.length);
  const totals = tree.sides.map(({ total }) => total);
  eachOutermost(tree, which, (top) => {
    let here = 0;
    for (let node = tree.parent[top]; node > 0; node = tree.parent[node]) {
      here = merged.child(here, tree.function[node]);
    }
    merged.count(here, totals, top);
  });
  return merged.nodes.finished();
}
