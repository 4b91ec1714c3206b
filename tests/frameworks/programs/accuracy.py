"""Prints the accuracy of a model of lockstep-train, measured by PyTorch.

accuracy.py model.safetensors IDX-IMAGES IDX-LABELS
"""

import sys

import torch
from safetensors.torch import load_file


class Cnn(torch.nn.Module):
    """lockstep-train's --model cnn, by the names of its tensors."""

    def __init__(self, classes):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.norm = torch.nn.GroupNorm(4, 64)
        self.fc1 = torch.nn.Linear(64 * 7 * 7, 128)
        self.fc2 = torch.nn.Linear(128, classes)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = self.norm(x).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


def idx(path, header):
    with open(path, "rb") as f:
        return torch.frombuffer(bytearray(f.read()[header:]),
                                dtype=torch.uint8)


tensors = load_file(sys.argv[1])
model = Cnn(tensors["fc2.bias"].numel())
model.load_state_dict(tensors)
model.eval()
images = idx(sys.argv[2], 16).reshape(-1, 1, 28, 28).float() / 255.0
labels = idx(sys.argv[3], 8).long()
with torch.no_grad():
    guess = model(images).argmax(dim=1)
print((guess == labels).double().mean().item())
