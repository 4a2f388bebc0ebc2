// How many samples each function has: of its own, and with all that it called.

/**
 * @param {CallTree} tree
 * @param {number} top only what is in this node's subtree counts
 * @param {number} functionCount
 * @returns {{self: Float64Array, total: Float64Array}}
 */
function hotFunctions(tree, top, functionCount) {
  const self = new Float64Array(functionCount);
  const total = new Float64Array(functionCount);
  // Of a function that calls itself only the outermost call counts: its samples are those of the inner ones, too.
  const callsOpen = new Int32Array(functionCount);
  const path = [];
  for (let node = top; node < tree.end[top]; node += 1) {
    while (path.length > tree.depth[node] - tree.depth[top]) callsOpen[path.pop()] -= 1;
    const which = tree.function[node];
    if (callsOpen[which] === 0) total[which] += tree.total[node];
    self[which] += tree.self[node];
    callsOpen[which] += 1;
    path.push(which);
  }
  return { self, total };
}
