let total = 0;
for (let i = 0; i < process.argv[2]; i++) {
  const rows = Array.from({length: 20000}, (_, j) => ({id: j, name: 'row ' + j * i, tags: [j % 7, j % 11]}));
  const text = JSON.stringify(rows);
  total += JSON.parse(text).filter(row => row.tags[0] === 3).length;
  total += Buffer.from(text).subarray(100, 200).toString('base64').length;
}
console.log(total);
