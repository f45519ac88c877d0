# The locked environment for Linux, with CUDA's libraries; it runs without a GPU as well. Rows go to ./outputs:
#   docker build -t benchbook .
#   docker run --gpus all --ipc host -v "$PWD/outputs:/benchbook/outputs" benchbook make study MACHINE=my-server
# hadolint finds no fault in it; it has not been built yet.
FROM python:3.11-slim-bookworm
# A compiler for torch.compile, and git for the commit in each row. Debian keeps one version of a package only.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ git make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /benchbook
COPY . .
RUN make setup PLATFORM=cuda && rm -rf ~/.cache
CMD ["make", "study"]
