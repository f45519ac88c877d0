"""The smallest study there can be: how long does an epoch of softmax regression take?"""
