// The graphs of the shown samples: flame graph, callers and callees, function table; their zoom, search and details.

import { showBreadcrumbs } from "./breadcrumbs.js";
import { buildCallTree, collectSelectedStacks, findVisibleAncestor, followPath, getTotals } from "./call_tree.js";
import { showDetails } from "./details.js";
import { announce, getElement, NUMBER_FORMAT } from "./elements.js";
import { FlameView } from "./flame.js";
import { FunctionTable } from "./function_table.js";
import { countFunctionSamples } from "./hot_functions.js";
import { required } from "./required.js";
import { SandwichView } from "./sandwich.js";
import { countMatchedSamples, searchFunctions } from "./search.js";
import { listAncestors } from "./tree_items.js";

/** @import { ThemeColours } from "./colours.js" */
/** @import { SearchResult } from "./search.js" */
/** @import { Presenter } from "./shares.js" */
/** @import { ShownSamples } from "./shown_samples.js" */

export class Graphs {
  /**
   * @param {ShownSamples} shown
   * @param {Presenter} presenter
   * @param {ThemeColours} colours
   * @param {{onSelectFunction: (functionIndex: number) => void, onZoom: () => void, onOpenWait: () => void}} options
   */
  constructor(shown, presenter, colours, { onSelectFunction, onZoom, onOpenWait }) {
    this.shown = shown;
    this.onZoom = onZoom;
    this.onOpenWait = onOpenWait;
    this.presenter = presenter;
    this.colours = colours;
    /** The node that the flame graph is zoomed to. */
    this.zoomed = 0;
    /** @type {number[]} the nodes that the graph was zoomed to before */
    this.zoomHistory = [];
    /** @type {SearchResult | null} */
    this.search = null;
    /** @type {number | null} the function whose callers and callees are shown */
    this.selectedFunction = null;
    this.flame = this.createFlameView("flame", "Flame graph", (node) => this.open(node));
    this.sandwich = new SandwichView(presenter, {
      createFlameView: (id, label, onZoom) => this.createFlameView(id, label, onZoom),
      onSelectFunction,
    });
    const tableOptions = {
      presenter,
      onSelectFunction,
      onCount: (/** @type {string} */ text) => (getElement("shown").textContent = text),
    };
    this.functionTable = new FunctionTable(
      getElement("functions"),
      tableOptions,
      shown.isDifference() ? "change" : "self",
    );
  }

  /**
   * @param {string} id
   * @param {string} label
   * @param {(node: number) => void} onZoom
   * @returns {FlameView}
   */
  createFlameView(id, label, onZoom) {
    const view = new FlameView(getElement(id), {
      label,
      colours: this.colours,
      presenter: this.presenter,
      onPoint: () => this.showBoxDetails(view),
      onZoom,
    });
    return view;
  }

  redraw() {
    for (const view of [this.flame, ...this.sandwich.graphs]) view.redraw();
  }

  setRootSide() {
    this.flame.setRootBelow(getElement("side").value === "below");
  }

  /** Builds the call tree again and keeps the zoom, or the nearest ancestor that the new tree contains. */
  rebuildTree() {
    const { flame } = this;
    const { profile, selection } = this.shown.select();
    const nodes = collectSelectedStacks(profile, selection, profile.rootsByGrouping[getElement("roots").value]);
    const tree = buildCallTree(nodes, profile.functions, getElement("order").value, this.presenter.getSampleWeights());
    const path = flame.tree ? this.listZoomedPath() : [];
    this.zoomHistory = [];
    this.zoomed = findVisibleAncestor(tree, followPath(tree, path));
    flame.show(tree, this.zoomed);
    this.showZoomed();
  }

  /** The functions from the root to the box that the graph is zoomed to. */
  listZoomedPath() {
    const { shownTree: tree } = this.flame;
    return [...listAncestors(tree, this.zoomed), this.zoomed].map((node) => tree.function[node]);
  }

  zoom(/** @type {number} */ node) {
    if (node === this.zoomed) return;
    this.zoomHistory.push(this.zoomed);
    this.zoomTo(node);
  }

  /** Zooms to a box that the user chose. The cause of waits shows their frames below it. */
  open(/** @type {number} */ node) {
    const isFolded = this.isFoldedWait(node);
    this.zoom(node);
    if (isFolded) this.onOpenWait();
  }

  /** Whether a box is the cause of waits whose frames are not shown. */
  isFoldedWait(/** @type {number} */ node) {
    const { shown, flame } = this;
    return !shown.showsWaitFrames && shown.profile.functions.kind[flame.shownTree.function[node]] === "wait";
  }

  zoomTo(/** @type {number} */ node) {
    this.zoomed = node;
    this.flame.zoom(node);
    this.showZoomed();
    this.onZoom();
    announce(`zoomed to ${this.presenter.describeBox(this.flame.shownTree, node)}`);
  }

  /** Returns to the zoom before, else to the whole graph. */
  zoomBack() {
    if (this.zoomHistory.length > 0) this.zoomTo(required(this.zoomHistory.pop()));
    else if (this.zoomed !== 0) this.zoomTo(0);
  }

  /** Zooms to the stack of a thread, or to its nearest caller that is visible. */
  zoomToStack(/** @type {number} */ thread, /** @type {number[]} */ path) {
    const { functions, rootsByGrouping } = this.shown.profile;
    const root = rootsByGrouping[getElement("roots").value][thread];
    const node = followPath(this.flame.shownTree, [functions.root, ...(root < 0 ? [] : [root]), ...path]);
    this.zoom(findVisibleAncestor(this.flame.shownTree, node));
  }

  /** Updates the parts of the page that depend on the zoom. */
  showZoomed() {
    const { shownTree: tree } = this.flame;
    showBreadcrumbs(getElement("breadcrumbs"), tree, this.zoomed, this.presenter.names, (node) => this.zoom(node));
    const sides = countFunctionSamples(tree, this.zoomed, this.shown.profile.functions.name.length);
    this.functionTable.show({ sides, totals: this.presenter.getTableTotals(tree, this.zoomed) });
    this.showMatched();
  }

  /** Searches the functions for the pattern in the page. */
  updateSearch() {
    this.search = searchFunctions(this.shown.profile.functions, getElement("pattern").value);
    for (const part of [this.flame, ...this.sandwich.graphs, this.functionTable]) part.setSearch(this.search);
    this.showMatched();
  }

  /** Shows how many samples and functions match the search. */
  showMatched() {
    const { search: result, zoomed } = this;
    let text = "";
    if (result) {
      const { shownTree: tree } = this.flame;
      const matched = this.presenter.describeMatches(countMatchedSamples(tree, zoomed, result), tree, zoomed);
      const count =
        result.functionCount === 1 ? "1 function" : `${NUMBER_FORMAT.format(result.functionCount)} functions`;
      text = `${matched}, ${count}${result.isLiteral ? ", taken as text" : ""}`;
    }
    getElement("matched").textContent = text;
  }

  /** Returns the function of the box at the pointer in a tab, or undefined for a root. */
  getPointedFunction(/** @type {string} */ tab) {
    const views = { flame: [this.flame], sandwich: this.sandwich.graphs }[tab] ?? [];
    const view = views.find((candidate) => candidate.getPointedNode() !== null);
    const functionIndex = view?.tree?.function[view.getPointedNode()];
    return functionIndex < this.shown.profile.functions.count ? functionIndex : undefined;
  }

  /** Selects the function whose callers and callees are shown. */
  selectFunction(/** @type {number} */ functionIndex) {
    this.selectedFunction = functionIndex;
    this.functionTable.setSelectedFunction(functionIndex);
  }

  showCallersAndCallees() {
    if (this.selectedFunction === null) return;
    this.sandwich.show(this.flame.shownTree, this.selectedFunction, getElement("order").value);
  }

  /** Shows the details of the box at the pointer or in focus. */
  showBoxDetails(/** @type {FlameView} */ view) {
    const node = view?.getPointedNode() ?? null;
    const totals = this.flame?.tree ? getTotals(this.flame.tree, 0) : [];
    showDetails(
      getElement("details"),
      this.presenter,
      node === null ? null : { tree: view.shownTree, node, zoomed: view.zoomed, totals },
    );
  }
}
