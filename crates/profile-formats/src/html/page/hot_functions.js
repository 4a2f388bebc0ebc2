// Counts the self and total samples of each function in a subtree.

import { required } from "./required.js";

/** @import { CallTree, SampleCounts } from "./call_tree.js" */

/**
 * @param {CallTree} tree
 * @param {number} top the root of the subtree
 * @param {number} functionCount
 * @returns {SampleCounts[]} the counts in each profile, by function index
 */
export function countFunctionSamples(tree, top, functionCount) {
  const counts = tree.sides.map(() => ({
    self: new Float64Array(functionCount),
    total: new Float64Array(functionCount),
  }));
  // The total of a recursive function is that of its outermost calls, which includes the inner calls.
  const activeCalls = new Int32Array(functionCount);
  const path = [];
  for (let node = top; node < tree.end[top]; node += 1) {
    while (path.length > tree.depth[node] - tree.depth[top]) activeCalls[required(path.pop())] -= 1;
    const functionIndex = tree.function[node];
    for (let side = 0; side < counts.length; side += 1) {
      const { self, total } = tree.sides[side];
      if (activeCalls[functionIndex] === 0) counts[side].total[functionIndex] += total[node];
      counts[side].self[functionIndex] += self[node];
    }
    activeCalls[functionIndex] += 1;
    path.push(functionIndex);
  }
  return counts;
}
