// Wakers: below a wait follow the separator `--`, the stack of the thread that ended it from its leaf to its root, and its name.

import { gatherEntries } from "./call_tree.js";
import { listAncestors } from "./tree_items.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { Functions } from "./document.js" */

/**
 * Waits and the waker that ended them, of one thread name and a few functions.
 * @typedef {object} WakeRow
 * @property {string} thread the name of the waker, or the group of the threads that waited
 * @property {number[]} functions the function that is nearest to the leaf, and its callers
 * @property {number[]} stack all functions of the stack with most samples, leaf first
 * @property {number[]} counts the samples of the waits in each profile
 */

/** The maximum number of functions that identify a row. */
const MAX_WAKE_FUNCTIONS = 3;

/** Kernel functions through which every system call enters. */
const KERNEL_ENTRIES = /^(entry_\w+|do_syscall_\w+|x64_sys_call|el0\w*|do_el0_svc|invoke_syscall)$/;

/** Lists the separators of a tree. A label below another one is the name of a waker. */
export function listSeparators(/** @type {CallTree} */ tree, /** @type {Uint8Array} */ isLabel) {
  const found = [];
  for (let node = 0; node < tree.size; ) {
    if (isLabel[tree.function[node]]) {
      found.push(node);
      node = tree.end[node];
    } else {
      node += 1;
    }
  }
  return found;
}

/**
 * Removes the stacks of wakers from a tree. Their samples end where the thread waited.
 * @returns {CallTree}
 */
export function removeWakers(/** @type {CallTree} */ tree, /** @type {Uint8Array} */ isLabel) {
  const separators = listSeparators(tree, isLabel);
  if (separators.length === 0) return tree;
  const isRemoved = new Uint8Array(tree.size);
  for (const separator of separators) isRemoved.fill(1, separator, tree.end[separator]);
  /** The number of kept nodes before each node, which is the place of a kept one. */
  const placeOf = new Int32Array(tree.size + 1);
  for (let node = 0; node < tree.size; node += 1) placeOf[node + 1] = placeOf[node] + 1 - isRemoved[node];
  const kept = new Int32Array(placeOf[tree.size]);
  for (let node = 0; node < tree.size; node += 1) if (!isRemoved[node]) kept[placeOf[node]] = node;
  const keepCounts = (counts) => {
    const self = counts.self.slice();
    for (const separator of separators) self[tree.parent[separator]] += counts.total[separator];
    return { ...counts, self: gatherEntries(self, kept), total: gatherEntries(counts.total, kept) };
  };
  const depth = gatherEntries(tree.depth, kept);
  return {
    size: kept.length,
    levels: depth.reduce((one, other) => Math.max(one, other)) + 1,
    function: gatherEntries(tree.function, kept),
    parent: gatherEntries(tree.parent, kept).map((parent) => (parent < 0 ? -1 : placeOf[parent])),
    end: gatherEntries(tree.end, kept).map((end) => placeOf[end]),
    depth,
    sides: tree.sides.map(keepCounts),
    states: tree.states.map(keepCounts),
    weight: gatherEntries(tree.weight, kept),
    start: gatherEntries(tree.start, kept),
  };
}

/**
 * Lists the wakers that ended the waits of a function, the wakers of the most samples first.
 * @param {CallTree} tree
 * @param {Functions} functions
 * @param {number} functionIndex
 */
export function listWakersOf(tree, functions, functionIndex) {
  const rows = new WakeRows(functions);
  for (const separator of listSeparators(tree, functions.isLabel)) {
    if (!listAncestors(tree, separator).some((node) => tree.function[node] === functionIndex)) continue;
    for (let node = separator; node < tree.end[separator]; node += 1) {
      const counts = tree.sides.map(({ self }) => self[node]);
      if (counts.every((count) => count === 0)) continue;
      const { name, stack } = readWaker(tree, functions, separator, node);
      rows.add(name, stack, counts);
    }
  }
  return rows.list();
}

/**
 * Lists the waits that a function ended as a part of wakers' stacks, or that the waker of this name ended.
 * @param {CallTree} tree
 * @param {Functions} functions
 * @param {number} functionIndex
 */
export function listWaitsEndedBy(tree, functions, functionIndex) {
  const rows = new WakeRows(functions);
  for (const separator of listSeparators(tree, functions.isLabel)) {
    const counts = sumOutermostCalls(tree, separator, functionIndex);
    if (counts.every((count) => count === 0)) continue;
    const wait = listAncestors(tree, separator).map((node) => tree.function[node]);
    const root = wait.findLast((index) => index >= functions.count);
    rows.add(functions.name[root ?? functions.root], wait.filter((index) => index < functions.count).reverse(), counts);
  }
  return rows.list();
}

/** Reads the stack of a waker, leaf first, and its name, from the node where it ends. */
function readWaker(/** @type {CallTree} */ tree, /** @type {Functions} */ { name, isLabel }, separator, end) {
  const stack = [];
  for (let node = end; node > separator; node = tree.parent[node]) stack.push(tree.function[node]);
  const hasName = stack.length > 0 && isLabel[stack[0]] === 1;
  return { name: hasName ? name[stack[0]] : "", stack: stack.slice(hasName ? 1 : 0).reverse() };
}

/** Sums the samples of a function's outermost calls in a subtree, in each profile. */
function sumOutermostCalls(/** @type {CallTree} */ tree, /** @type {number} */ top, /** @type {number} */ functionIndex) {
  const counts = tree.sides.map(() => 0);
  for (let node = top; node < tree.end[top]; ) {
    if (tree.function[node] === functionIndex) {
      tree.sides.forEach(({ total }, side) => (counts[side] += total[node]));
      node = tree.end[node];
    } else {
      node += 1;
    }
  }
  return counts;
}

/** Sums waits by thread name and functions. */
class WakeRows {
  constructor(/** @type {Functions} */ functions) {
    this.functions = functions;
    /** @type {Map<string, WakeRow & {most: number}>} */
    this.rows = new Map();
  }

  add(/** @type {string} */ thread, /** @type {number[]} */ stack, /** @type {number[]} */ counts) {
    const functions = selectWakeFunctions(this.functions, stack);
    const key = `${functions.join(" ")} ${thread}`;
    const weight = counts.reduce((sum, count) => sum + count, 0);
    const row = this.rows.get(key);
    if (!row) {
      this.rows.set(key, { thread, functions, stack, counts: [...counts], most: weight });
      return;
    }
    counts.forEach((count, side) => (row.counts[side] += count));
    if (weight > row.most) Object.assign(row, { stack, most: weight });
  }

  /** @returns {WakeRow[]} the rows of the most samples first */
  list() {
    const weigh = ({ counts }) => counts.reduce((sum, count) => sum + count, 0);
    return [...this.rows.values()].sort((one, other) => weigh(other) - weigh(one));
  }
}

/**
 * Selects the functions of a stack that say most, leaf first: methods if it has any, else those outside of the kernel, else
 * the kernel function nearest to the root that is not the entry of every system call.
 * @param {Functions} functions
 * @param {number[]} stack leaf first
 */
function selectWakeFunctions({ kind, name }, stack) {
  const isManaged = (index) => kind[index] === "jit" || kind[index] === "precompiled";
  const methods = stack.filter(isManaged);
  const user = methods.length > 0 ? methods : stack.filter((index) => kind[index] !== "kernel");
  if (user.length > 0) return user.slice(0, MAX_WAKE_FUNCTIONS);
  const kernel = stack.findLast((index) => !KERNEL_ENTRIES.test(name[index])) ?? stack.at(-1);
  return kernel === undefined ? [] : [kernel];
}
