// The view of a function: its callers, its callees, and the wakers of its waits.

import { buildCallTree, getTotals, mergeCallees, mergeCallers } from "./call_tree.js";
import { createElement, createNameElement, getElement } from "./elements.js";
import { WakeTables } from "./wake_tables.js";
import { removeWakers } from "./wakers.js";

/** @import { CallTree } from "./call_tree.js" */
/** @import { FlameView } from "./flame.js" */
/** @import { Presenter } from "./shares.js" */

export class SandwichView {
  /**
   * @param {Presenter} presenter
   * @param {{createFlameView: (id: string, label: string, onZoom: (node: number) => void) => FlameView,
   *   onSelectFunction: (functionIndex: number) => void}} options
   */
  constructor(presenter, { createFlameView, onSelectFunction }) {
    this.presenter = presenter;
    this.callers = createFlameView("callers", "Callers", (node) => this.callers.zoom(node));
    this.callees = createFlameView("callees", "Callees", (node) => this.callees.zoom(node));
    this.callers.setRootBelow(true);
    /** The graphs. @type {FlameView[]} */
    this.graphs = [this.callers, this.callees];
    this.wakes = new WakeTables(getElement("wakes"), { presenter, onSelectFunction });
  }

  /**
   * Shows a function. The frames of wakers are neither its callers nor its callees.
   * @param {CallTree} tree
   * @param {number} functionIndex
   * @param {string} order one of `ORDERS`
   */
  show(tree, functionIndex, order) {
    const { presenter } = this;
    const { functions } = presenter;
    const own = removeWakers(tree, functions.isLabel);
    const count = functions.name.length;
    const showNodes = (view, nodes) => view.show(buildCallTree(nodes, functions, order, presenter.getSampleWeights()));
    showNodes(this.callers, mergeCallers(own, functionIndex, count));
    showNodes(this.callees, mergeCallees(own, functionIndex, count));
    this.wakes.show(tree, functionIndex);
    const shares = presenter.describeSamples(getTotals(this.callees.shownTree, 0), getTotals(tree, 0));
    getElement("middle").replaceChildren(
      createNameElement(functions.name[functionIndex]),
      createElement("span", {}, shares),
    );
  }

  /** Shows the whole of zoomed graphs, and returns whether there was one. */
  resetZoom() {
    const zoomed = this.graphs.filter((view) => view.zoomed > 0);
    for (const view of zoomed) view.zoom(0);
    return zoomed.length > 0;
  }
}
