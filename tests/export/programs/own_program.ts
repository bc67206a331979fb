// A program that uses all of the module of a classifier; the TypeScript compiler checks its types.
import * as pets from "./pets/classifier.js";
import { type Answer, classify, classNames, load, locateFiles, seenBox } from "./pets/classifier.js";

locateFiles(async (name) => new URL(name, "https://example.com/pets/").href);
await load();
const input = document.querySelector<HTMLInputElement>("input")!;
for (const image of [input.files![0], document.createElement("canvas"), new Image(), "a.jpg", new URL("b:c")]) {
  const answer: Answer = await classify(image);
  const best: string = answer.top[0].class;
  const share: number = answer.probabilities[classNames.indexOf(best)];
  const box = answer.attention?.box ?? seenBox(640, 480);
  console.log(best, share, answer.labels?.join(), box.x + box.width, answer.attention?.values[0]);
}

// @ts-expect-error: a number is no image.
await classify(42);

// All names of the module have types.
const names: (keyof typeof pets)[] = ["classNames", "locateFiles", "load", "classify", "seenBox"];
console.log(names);
