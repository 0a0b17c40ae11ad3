// A flame graph as an SVG file.

import { crateOf, shortName } from "../data/names.ts";
import { short } from "../data/text.ts";
import { nodeName, type Tree } from "../data/tree.ts";
import { share, value } from "../data/units.ts";
import { balancePaint, cratePaint } from "./colours.ts";
import { layout } from "./layout.ts";

const WIDTH = 1200;
const ROW = 18;
const CHARACTER = 6.6;

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/** Returns the SVG text of the tree, zoomed to a node. */
export function flameSvg(tree: Tree, zoom: number, unit: string, isDifference: boolean): string {
  const boxes = layout(tree, zoom, WIDTH, 0.5);
  const height = boxes.rows.length * ROW + 4;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}" font-family="monospace" font-size="11">\n`,
  ];
  boxes.node.forEach((node, box) => {
    if (node < 0) return;
    const name = nodeName(tree, node);
    const paint = isDifference
      ? balancePaint(tree.net[node]! / (tree.width[node]! || 1), false)
      : cratePaint(node === 0 ? "" : crateOf(name), false);
    const x = boxes.x[box]!;
    const y = boxes.row[box]! * ROW + 2;
    const width = boxes.width[box]!;
    const title = `${short(name, 1000)}: ${value(tree.net[node]!, unit)}, ${share(tree.width[node]!, tree.width[0]!)}`;
    const room = Math.floor((width - 6) / CHARACTER);
    const label = short(name.length <= room ? name : shortName(name), Math.max(1, room));
    const text = room >= 3 ? `<text x="${(x + 3).toFixed(1)}" y="${y + 12}" fill="${paint.text}">${escape(label)}</text>` : "";
    parts.push(
      `<g><title>${escape(title)}</title><rect x="${x.toFixed(2)}" y="${y}" width="${Math.max(0.5, width - 0.5).toFixed(2)}" height="${ROW - 1}" fill="${paint.fill}"/>${text}</g>\n`,
    );
  });
  parts.push("</svg>\n");
  return parts.join("");
}
