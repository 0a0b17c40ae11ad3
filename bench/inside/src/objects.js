function Node(key, value) { this.key = key; this.value = value; this.children = []; }
let total = 0;
for (let round = 0; round < SCALE; round++) {
    const map = new Map();
    const root = new Node("root", 0);
    for (let i = 0; i < 400; i++) {
        const node = new Node("key" + i, [i, i * 2, i * 3]);
        root.children.push(node);
        map.set(node.key + ":" + (i % 10), () => node.value.map(x => x + 1));
    }
    const text = JSON.stringify(root.children.slice(0, 100));
    total += JSON.parse(text).reduce((sum, node) => sum + node.value[2], 0);
    for (const [key, make] of map) total += make()[1] + key.split(":").length;
    total += root.children.map(n => n.key.toUpperCase()).sort().join(",").length;
}
"" + total
