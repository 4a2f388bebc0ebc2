// Call trees: which function called which, and how many samples each call has.

/**
 * A call tree with its nodes in preorder: the subtree of `node` is `node` up to, not including, `end[node]`.
 * @typedef {object} CallTree
 * @property {number} size
 * @property {number} levels
 * @property {Int32Array} function
 * @property {Int32Array} parent -1 for node 0
 * @property {Int32Array} end
 * @property {Int32Array} depth
 * @property {Float64Array} self samples that end here
 * @property {Float64Array} total samples of the subtree
 * @property {Float64Array} start samples to the left of the node
 */

/**
 * Nodes in any order in which a parent stands before its children.
 * @typedef {object} Nodes
 * @property {ArrayLike<number>} parent
 * @property {ArrayLike<number>} function
 * @property {ArrayLike<number>} self
 */

/**
 * Which of two nodes stands further left.
 * @type {Record<string, (functions: Functions, which: ArrayLike<number>, totals: Float64Array) => (a: number, b: number) => number>}
 */
const ORDERS = {
  samples: ({ name }, which, totals) => (a, b) => totals[b] - totals[a] || (name[which[a]] < name[which[b]] ? -1 : 1),
  name: ({ name }, which) => (a, b) => (name[which[a]] < name[which[b]] ? -1 : 1),
};

/**
 * The tree of these nodes, siblings in order. Nodes without samples are left out.
 * @param {Nodes} nodes
 * @param {Functions} functions
 * @param {string} order one of `ORDERS`
 * @returns {CallTree}
 */
function callTree(nodes, functions, order) {
  const { totals, sizes, firstChild, nextSibling } = linkedNodes(nodes);
  const size = sizes[0];
  const tree = {
    size,
    levels: 1,
    function: new Int32Array(size),
    parent: new Int32Array(size),
    end: new Int32Array(size),
    depth: new Int32Array(size),
    self: new Float64Array(size),
    total: new Float64Array(size),
    start: new Float64Array(size),
  };
  const place = (node, at, parent, start) => {
    tree.function[at] = nodes.function[node];
    tree.parent[at] = parent;
    tree.end[at] = at + sizes[node];
    tree.depth[at] = parent < 0 ? 0 : tree.depth[parent] + 1;
    tree.levels = Math.max(tree.levels, tree.depth[at] + 1);
    tree.self[at] = nodes.self[node];
    tree.total[at] = totals[node];
    tree.start[at] = start;
  };
  const compare = ORDERS[order](functions, nodes.function, totals);
  place(0, 0, -1, 0);
  // Nodes whose children have no place yet, each before its own place.
  const open = [0, 0];
  while (open.length > 0) {
    const parent = open.pop();
    const first = sortSiblings(nextSibling, firstChild[open.pop()], compare);
    let at = parent + 1;
    let start = tree.start[parent];
    for (let node = first; node >= 0; node = nextSibling[node]) {
      place(node, at, parent, start);
      if (firstChild[node] >= 0) open.push(node, at);
      at += sizes[node];
      start += totals[node];
    }
  }
  return tree;
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
function linkedNodes(/** @type {Nodes} */ { parent, self }) {
  const count = parent.length;
  const totals = Float64Array.from(self);
  const sizes = new Int32Array(count).fill(1);
  const firstChild = new Int32Array(count).fill(-1);
  const nextSibling = new Int32Array(count).fill(-1);
  for (let node = count - 1; node > 0; node -= 1) {
    if (totals[node] === 0) continue;
    const above = parent[node];
    totals[above] += totals[node];
    sizes[above] += sizes[node];
    nextSibling[node] = firstChild[above];
    firstChild[above] = node;
  }
  return { totals, sizes, firstChild, nextSibling };
}

/**
 * The samples of some spans of time, as nodes below one root for each of `roots`.
 * @param {Profile} profile
 * @param {{from: number, to: number}} range spans, the last one included
 * @param {Int32Array} roots each thread's root, or -1
 * @returns {Nodes}
 */
function selectedNodes({ tree, timeline, functions }, range, roots) {
  const nodes = new GrowingNodes();
  nodes.add(-1, functions.root);
  const placing = new Placing(tree, nodes);
  for (const { root, entries } of entriesByRoot(timeline, range, roots)) {
    placing.begin(root < 0 ? 0 : nodes.add(0, root));
    entries.forEach((entry) => placing.add(timeline.node[entry], timeline.count[entry]));
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

  /** Adds samples at a node, which takes its place now if it has none. */
  add(/** @type {number} */ node, /** @type {number} */ count) {
    if (this.placed[node] < 0) this.place(node);
    this.nodes.self[this.placed[node]] += count;
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

/** @returns {{root: number, entries: Uint32Array}[]} */
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
  const entriesOf = (group) => sorted.subarray(starts[group], starts[group + 1]);
  const found = Array.from(groups, ([root, group]) => ({ root, entries: entriesOf(group) }));
  return found.filter(({ entries }) => entries.length > 0);
}

/** Nodes that are added one by one. */
class GrowingNodes {
  constructor() {
    this.size = 0;
    this.parent = new Int32Array(1024);
    this.function = new Int32Array(1024);
    this.self = new Float64Array(1024);
  }

  add(parent, which) {
    if (this.size === this.parent.length) {
      for (const column of ["parent", "function", "self"]) {
        const grown = new this[column].constructor(2 * this.size);
        grown.set(this[column]);
        this[column] = grown;
      }
    }
    this.parent[this.size] = parent;
    this.function[this.size] = which;
    this.size += 1;
    return this.size - 1;
  }

  /** @returns {Nodes} */
  finished() {
    const { size } = this;
    return {
      parent: this.parent.subarray(0, size),
      function: this.function.subarray(0, size),
      self: this.self.subarray(0, size),
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
  constructor(root, functionCount) {
    this.nodes = new GrowingNodes();
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
}

/**
 * What a function called: everything below its outermost calls, as one tree.
 * @returns {Nodes}
 */
function calleeNodes(/** @type {CallTree} */ tree, which, functionCount) {
  const merged = new MergedNodes(which, functionCount);
  eachOutermost(tree, which, (top) => {
    const placed = new Int32Array(tree.end[top] - top);
    for (let node = top; node < tree.end[top]; node += 1) {
      const here = node === top ? 0 : merged.child(placed[tree.parent[node] - top], tree.function[node]);
      placed[node - top] = here;
      merged.nodes.self[here] += tree.self[node];
    }
  });
  return merged.nodes.finished();
}

/**
 * Who called a function: the way from its outermost calls to the root, as one tree.
 * @returns {Nodes}
 */
function callerNodes(/** @type {CallTree} */ tree, which, functionCount) {
  const merged = new MergedNodes(which, functionCount);
  eachOutermost(tree, which, (top) => {
    let here = 0;
    for (let node = tree.parent[top]; node > 0; node = tree.parent[node]) {
      here = merged.child(here, tree.function[node]);
    }
    merged.nodes.self[here] += tree.total[top];
  });
  return merged.nodes.finished();
}
