"""The words of the shell in Python: a function for each command that computes something.

`keras_vit/commands/as_functions.py` makes them of the commands.
"""

from keras_vit.commands.as_functions import function_of

check = function_of("check")
finetune = function_of("finetune")
sweep = function_of("sweep")
pretrain = function_of("pretrain")
evaluate = function_of("evaluate")
calibrate = function_of("calibrate")
compare = function_of("compare")
embed = function_of("embed")
few_shot = function_of("few_shot")
convert = function_of("convert")
verify = function_of("verify")
push = function_of("push")
