// Prints as JSON what the module of a classifier and `bitmaps.js` do in Node, with these files.
import fs from "node:fs";

const [folder, ...paths] = process.argv.slice(2);
const { classify, load } = await import(`${folder}/classifier.mjs`);
const { withoutOrientation } = await import(`${folder}/bitmaps.mjs`);
const reason = (promise) => promise.catch((error) => `${error.name}: ${error.message}`);

const files = [];
for (const path of paths) {
  const { content, orientation } = await withoutOrientation(new Blob([fs.readFileSync(path)]));
  const again = await withoutOrientation(content);
  files.push({ orientation, again: again.orientation });
}
console.log(JSON.stringify({
  kinds: await Promise.all([42, null, [], { a: 1 }].map((image) => reason(classify(image)))),
  browser: await Promise.all([classify("a.jpg"), classify(new Blob()), load()].map(reason)),
  files,
}));
