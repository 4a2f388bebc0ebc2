// How many samples each function has: of its own, and with all that it called.

/**
 * @param {CallTree} tree
 * @param {number} top only what is in this node's subtree counts
 * @param {number} functionCount
 * @returns {Counts[]} in each profile
 */
function hotFunctions(tree, top, functionCount) {
  const hot = tree.sides.map(() => ({ self: new Float64Array(functionCount), total: new Float64Array(functionCount) }));
  // Of a function that calls itself only the outermost call counts: its samples are those of the inner ones, too.
  const callsOpen = new Int32Array(functionCount);
  const path = [];
  for (let node = top; node < tree.end[top]; node += 1) {
    while (path.length > tree.depth[node] - tree.depth[top]) callsOpen[path.pop()] -= 1;
    const which = tree.function[node];
    for (let side = 0; side < hot.length; side += 1) {
      const { self, total } = tree.sides[side];
      if (callsOpen[which] === 0) hot[side].total[which] += total[node];
      hot[side].self[which] += self[node];
    }
    callsOpen[which] += 1;
    path.push(which);
  }
  return hot;
}
