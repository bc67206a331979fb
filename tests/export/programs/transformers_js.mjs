// Prints what transformers.js answers: node transformers_js.mjs LIBRARY FOLDER BMP IMAGES...
const [library, folder, bmp, ...images] = process.argv.slice(2);
const { env, pipeline } = await import(library);
env.allowRemoteModels = false;
const classify = await pipeline("image-classification", folder);
const answers = [];
for (const image of images) answers.push(await classify(image, { top_k: 1000 }));
// The largest first, else it runs out of its array.
const together = await classify(images.reverse()).catch((error) => error.message);
const refused = await classify(bmp).catch((error) => error.message);
console.log(JSON.stringify({ answers, together, refused }));
